/** A form's way to the device and back: busy, then done, or the device's texts at its fields. */

import { byField } from "./faults.ts";
import { faultText, feedback } from "./feedback.svelte.ts";
import { Overtaken, Refused } from "./http.ts";
import { t, toldFaults } from "./language.svelte.ts";
import type { Key } from "../messages/en.ts";
import type { Identified, Resource } from "./resources.svelte.ts";
import type { Said } from "./types.ts";

/** Characters of another operator's value that are shown. */
const SHOWN_MAX = 80;
const SECRET = /(^|\/)(password|secret|uuid|token|config_json|[\w-]*key)$/;

/**
 * Return by field what another operator has set meanwhile; secrets are not shown. Null stands for
 * what may have been changed.
 */
function overtakenAt({ theirs }: Overtaken, fields: readonly string[]): Record<string, string> {
  const faults = Object.entries(theirs).map(([field, value]) => ({
    pointer: `/${field}`,
    code: "",
    values: {},
    detail: theirText(field, value),
  }));
  const found = Object.entries(byField(faults, fields));
  return Object.fromEntries(found.map(([field, [first]]) => [field, first?.detail ?? ""]));
}

function theirText(field: string, value: unknown): string {
  if (value === null) return t("edit.changedPerhaps");
  const isUnseen =
    SECRET.test(field) || typeof value === "object" || String(value).length > SHOWN_MAX;
  return isUnseen ? t("edit.changedUnseen") : t("edit.changed", { value: String(value) });
}

export class Form {
  isBusy = $state(false);
  /** By field; what belongs to none stands under "". */
  problems = $derived.by(() => this.problemsAt(this.#fields));

  #fields: readonly string[];
  #labels: Readonly<Record<string, Key>>;
  #failure = $state.raw<unknown>();
  #hasEnded = false;

  /** `labels` are those of fields that have another one here than elsewhere. */
  constructor(fields: readonly string[], labels: Readonly<Record<string, Key>> = {}) {
    this.#fields = fields;
    this.#labels = labels;
  }

  /** It is not shown any more: what comes of it closes nothing, and a failure is told aside. */
  end(): void {
    this.#hasEnded = true;
  }

  /** Tell of a failure, if the form is not there to show it. */
  tellAside(text: string): void {
    if (this.#hasEnded) feedback.say(text, true);
  }

  /** Return the problems of `fields`, which are pointers without the first slash; see `byField`. */
  problemsAt(fields: readonly string[]): Record<string, string> {
    const failure = this.#failure;
    if (failure === undefined) return {};
    if (failure instanceof Overtaken) return overtakenAt(failure, fields);
    if (!(failure instanceof Refused) || failure.faults.length === 0)
      return { "": faultText(failure) };
    const found = Object.entries(byField(failure.faults, fields));
    return Object.fromEntries(found.map(([field, faults]) => [field, toldFaults(faults, this.#labels)]));
  }

  /** Show no problems any more. */
  clear(): void {
    this.#failure = undefined;
  }

  /** Do it; whether it went well. */
  async send(act: () => Promise<unknown>): Promise<boolean> {
    if (this.isBusy) return false;
    this.isBusy = true;
    try {
      await act();
      this.clear();
      return true;
    } catch (error) {
      this.tellAside(error instanceof Overtaken ? t("edit.overtaken") : faultText(error));
      // Nobody is logged in: the page says so.
      if (error instanceof Refused && error.status === 401) return false;
      this.#failure = error;
      return false;
    } finally {
      this.isBusy = false;
    }
  }

  /** Change rows of a list; once the device has done so, tell what it said and close the form. */
  async save(
    act: () => Promise<Said>,
    list: Pick<Resource<Identified>, "load">,
    close: () => void,
  ): Promise<void> {
    if (!(await this.send(async () => feedback.show(await act())))) return;
    if (!this.#hasEnded) close();
    await list.load();
  }
}

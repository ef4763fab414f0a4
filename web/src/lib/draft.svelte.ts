/** Values edited as a whole in a form that stays open: loaded, kept up to date, saved together. */

import { rebased } from "./edits.ts";
import { faultText, feedback } from "./feedback.svelte.ts";
import { Form } from "./form.svelte.ts";
import { Refused, request } from "./http.ts";
import { t } from "./language.svelte.ts";
import { live } from "./live.svelte.ts";
import type { Said } from "./types.ts";
import { unsaved } from "./unsaved.svelte.ts";

/** Times that a change is made anew because another one came between. */
const TRIES = 10;

/** A draft of plain values by field. It is created in a component and ends with it. */
export class Draft<T extends object> {
  /** Typed values of changed fields, the device's values of others; null until those are known. */
  values = $state<T | null>(null);
  problem = $state("");
  /** True if another session has saved a different value for a field that is changed here. */
  isOvertaken = $state(false);
  readonly form: Form;

  #path: string;
  #fields: readonly (keyof T & string)[];
  #saved = $state.raw<T | null>(null);
  /** The tag of the version in `#saved`. */
  #tag = "";
  #asked = 0;
  #answered = 0;

  /** `subjects` are the subjects of live events whose changes may change the values. */
  constructor(path: string, fields: readonly (keyof T & string)[], subjects: readonly string[]) {
    this.#path = path;
    this.#fields = fields;
    this.form = new Form(fields);
    $effect(() => {
      void this.load();
      return live.onChangeOf(subjects, () => void this.load());
    });
    $effect(() => (this.isChanged ? unsaved.hold() : undefined));
    $effect(() => {
      if (!this.isChanged) this.isOvertaken = false;
    });
  }

  get isChanged(): boolean {
    return this.#fields.some((field) => this.#isTyped(field));
  }

  /** Load the fields that are not being changed here. Never raises: see `problem`. */
  async load(): Promise<void> {
    const asked = ++this.#asked;
    try {
      const answer = await request("GET", this.#path);
      const found = (await answer.json()) as T;
      // A later request may have been answered before this one.
      if (asked < this.#answered) return;
      this.#answered = asked;
      this.#tag = answer.headers.get("etag") ?? "";
      this.isOvertaken ||= this.#fields.some((field) => this.#isTakenBack(field, found));
      const typed = this.#typed();
      this.values = typed && this.#saved ? rebased<T>(this.#saved, typed, found) : { ...found };
      this.#saved = found;
      this.problem = "";
    } catch (error) {
      // The session has ended: the page shows the login.
      if (error instanceof Refused && error.status === 401) return;
      this.problem = faultText(error);
    }
  }

  /** Save the values. If another session has changed the same fields meanwhile, warn first. */
  async save(): Promise<void> {
    await this.form.send(async () => {
      // The operator has seen the warnings that were shown until now.
      this.isOvertaken = false;
      let sent: T | null = null;
      for (let tries = 1; sent === null; tries += 1) {
        // The event stream may be down or late.
        await this.load();
        if (this.problem || this.isOvertaken) {
          this.form.tellAside(this.problem || t("edit.overtaken"));
          return;
        }
        sent = await this.#put(tries === TRIES);
      }
      this.#saved = sent;
      this.isOvertaken = false;
      await this.load();
    });
  }

  /** Discard the typed values. */
  undo(): void {
    this.values = this.#saved && { ...this.#saved };
  }

  /** Save the values, and return them; null if another version is there, unless `isLast`. */
  async #put(isLast: boolean): Promise<T | null> {
    const sent = this.#typed();
    const init = { body: JSON.stringify(sent), type: "application/json", ifMatch: this.#tag };
    try {
      feedback.show((await (await request("PUT", this.#path, init)).json()) as Said, true);
      return sent;
    } catch (error) {
      if (!isLast && error instanceof Refused && error.status === 412) return null;
      throw error;
    }
  }

  #typed(): T | null {
    return $state.snapshot(this.values) as T | null;
  }

  #isTyped(field: keyof T): boolean {
    return this.#saved !== null && this.values?.[field] !== this.#saved[field];
  }

  /** True if saving the typed value would undo another session's change. */
  #isTakenBack(field: keyof T, found: T): boolean {
    const there = found[field];
    return (
      this.#isTyped(field) && there !== this.#saved?.[field] && there !== this.values?.[field]
    );
  }
}

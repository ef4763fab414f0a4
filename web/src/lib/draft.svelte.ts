/** What is edited as a whole, in a form that stays open: loaded, kept up, and saved together. */

import { rebased } from "./edits.ts";
import { faultText, feedback } from "./feedback.svelte.ts";
import { Form } from "./form.svelte.ts";
import { Refused, call } from "./http.ts";
import { t } from "./language.svelte.ts";
import { live } from "./live.svelte.ts";
import type { Said } from "./types.ts";
import { unsaved } from "./unsaved.svelte.ts";

/** Of plain values by field. Made by a component, with which it ends. */
export class Draft<T extends object> {
  /** As typed, and as it is on the device elsewhere; null until that is known. */
  values = $state<T | null>(null);
  problem = $state("");
  /** Somebody else has saved something else for what is being changed here. */
  isOvertaken = $state(false);
  readonly form: Form;

  #path: string;
  #fields: readonly (keyof T & string)[];
  #saved = $state.raw<T | null>(null);
  #asked = 0;
  #answered = 0;

  /** `subjects` are those whose changes may change it. */
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

  /** Show what others have saved, but for what is being changed here. Never raises: see `problem`. */
  async load(): Promise<void> {
    const asked = ++this.#asked;
    try {
      const found = await call<T>("GET", this.#path);
      // A later answer may have come before this one.
      if (asked < this.#answered) return;
      this.#answered = asked;
      this.isOvertaken ||= this.#fields.some((field) => this.#isTakenBack(field, found));
      const typed = this.#typed();
      this.values = typed && this.#saved ? rebased<T>(this.#saved, typed, found) : { ...found };
      this.#saved = found;
      this.problem = "";
    } catch (error) {
      // Nobody is logged in: the page says so.
      if (error instanceof Refused && error.status === 401) return;
      this.problem = faultText(error);
    }
  }

  /** Send it. What somebody else has saved meanwhile for the same is first told. */
  async save(): Promise<void> {
    await this.form.send(async () => {
      // Of what was told until now, whoever saves knows.
      this.isOvertaken = false;
      // The stream may be down, or its news not be here yet.
      await this.load();
      if (this.problem || this.isOvertaken) {
        this.form.tellAside(this.problem || t("edit.overtaken"));
        return;
      }
      const sent = this.#typed();
      feedback.say((await call<Said>("PUT", this.#path, sent)).msg);
      this.#saved = sent;
      this.isOvertaken = false;
      await this.load();
    });
  }

  /** Take back what was typed. */
  undo(): void {
    this.values = this.#saved && { ...this.#saved };
  }

  #typed(): T | null {
    return $state.snapshot(this.values) as T | null;
  }

  #isTyped(field: keyof T): boolean {
    return this.#saved !== null && this.values?.[field] !== this.#saved[field];
  }

  /** Whether saving what was typed would take back what somebody else has saved. */
  #isTakenBack(field: keyof T, found: T): boolean {
    const there = found[field];
    return (
      this.#isTyped(field) && there !== this.#saved?.[field] && there !== this.values?.[field]
    );
  }
}

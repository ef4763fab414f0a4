/** Unsaved input: the page asks before it is left. */

import { SvelteSet } from "svelte/reactivity";
import { feedback } from "./feedback.svelte.ts";
import { t } from "./language.svelte.ts";

class Unsaved {
  readonly #holders = new SvelteSet<symbol>();

  get isThere(): boolean {
    return this.#holders.size > 0;
  }

  /** Mark input as unsaved until the returned function is called. For `$effect`. */
  hold(): () => void {
    const holder = Symbol();
    this.#holders.add(holder);
    return () => this.#holders.delete(holder);
  }

  /** Resolve to true if open forms may close; the operator is asked if there is unsaved input. */
  async mayGo(): Promise<boolean> {
    const question = { title: t("edit.leave"), text: t("edit.leaveText"), action: t("edit.leaveAct") };
    return !this.isThere || feedback.ask(question);
  }
}

export const unsaved = new Unsaved();

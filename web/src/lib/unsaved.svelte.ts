/** What was typed and is not saved: nobody leaves it without being asked. */

import { SvelteSet } from "svelte/reactivity";
import { feedback } from "./feedback.svelte.ts";
import { t } from "./language.svelte.ts";

class Unsaved {
  readonly #holders = new SvelteSet<symbol>();

  get isThere(): boolean {
    return this.#holders.size > 0;
  }

  /** There is something until the function that this returns is called. For `$effect`. */
  hold(): () => void {
    const holder = Symbol();
    this.#holders.add(holder);
    return () => this.#holders.delete(holder);
  }

  /** Whether what is open may go: somebody is asked who has typed into it. */
  async mayGo(): Promise<boolean> {
    const question = { title: t("edit.leave"), text: t("edit.leaveText"), action: t("edit.leaveAct") };
    return !this.isThere || feedback.ask(question);
  }
}

export const unsaved = new Unsaved();

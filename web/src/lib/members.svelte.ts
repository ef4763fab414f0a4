/** The boxes of the site that this one belongs to, loaded while a page shows them. */

import { call } from "./http.ts";
import { live } from "./live.svelte.ts";
import { OPS } from "./paths.ts";
import type { MemberList, MemberState } from "./types.ts";

/** Milliseconds between two loads. A change of a role is loaded at once, by its event. */
const RELOAD_MS = 5_000;

class Members {
  /** Empty on a box of its own. */
  all = $state.raw<readonly MemberState[]>([]);

  /** Load the boxes now and then until the returned function is called. For `$effect`. */
  watch(): () => void {
    const load = (): void => void this.#load();
    load();
    const timer = setInterval(() => document.hidden || this.all.length === 0 || load(), RELOAD_MS);
    const stop = live.on("pair", load);
    return () => {
      clearInterval(timer);
      stop();
    };
  }

  /** Discard everything: another operator may log in. */
  clear(): void {
    this.all = [];
  }

  async #load(): Promise<void> {
    try {
      this.all = (await call<MemberList>("GET", `${OPS}/members`)).data;
    } catch {
      // The last states stay; the page shows by itself that this box does not answer.
    }
  }
}

export const members = new Members();

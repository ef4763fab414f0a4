/** The addresses that targets in use leave by, loaded while a page shows them. */

import { call } from "./http.ts";
import { live } from "./live.svelte.ts";
import { OPS } from "./paths.ts";
import type { Exit, ExitList } from "./types.ts";

/** Milliseconds between two loads. Changed addresses are loaded at once, by their events. */
const RELOAD_MS = 30_000;

class Exits {
  #byName = $state.raw(new Map<string, Exit>());

  /** The exit of a target, by its name in rules; undefined if the target is not in use. */
  of(target: string): Exit | undefined {
    return this.#byName.get(target);
  }

  /** Load the exits now and then until the returned function is called. For `$effect`. */
  watch(): () => void {
    const load = (): void => void this.#load();
    load();
    const timer = setInterval(() => document.hidden || load(), RELOAD_MS);
    const stops = [live.on("exit", load), live.onChangeOf(["nodes", "rules"], load)];
    return () => {
      clearInterval(timer);
      for (const stop of stops) stop();
    };
  }

  /** Discard everything: another operator may log in. */
  clear(): void {
    this.#byName = new Map();
  }

  async #load(): Promise<void> {
    try {
      const { data } = await call<ExitList>("GET", `${OPS}/exits`);
      this.#byName = new Map(data.map((exit) => [exit.name, exit]));
    } catch {
      // The last addresses stay: they are old already, and say how old.
    }
  }
}

export const exits = new Exits();

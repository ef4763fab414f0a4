/** Delay tests: one node after the other, some at a time, with progress, and to be cancelled. */

import { SvelteMap } from "svelte/reactivity";
import { Refused, call } from "./http.ts";
import { V1 } from "./paths.ts";

const AT_ONCE = 8;

export interface DelayResult {
  /** Milliseconds, or -1. */
  delay: number;
  error: string;
}

class Delays {
  /** The latest results, by node name. */
  readonly results = new SvelteMap<string, DelayResult | "pending">();
  total = $state(0);
  done = $state(0);

  #abort: AbortController | null = null;

  get isRunning(): boolean {
    return this.done < this.total;
  }

  /** Measure these nodes. A run that goes on is given up. */
  async measure(names: string[]): Promise<void> {
    this.cancel();
    const abort = new AbortController();
    this.#abort = abort;
    this.total = names.length;
    this.done = 0;
    const waiting = [...names];
    const worker = async (): Promise<void> => {
      for (let name = waiting.shift(); name !== undefined; name = waiting.shift()) {
        this.results.set(name, "pending");
        const result = await measured(name, abort.signal);
        if (abort.signal.aborted) return;
        this.results.set(name, result);
        this.done += 1;
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
  }

  /** Give up what has no result yet. */
  cancel(): void {
    this.#abort?.abort();
    this.#abort = null;
    for (const [name, result] of this.results) {
      if (result === "pending") this.results.delete(name);
    }
    this.total = this.done = 0;
  }
}

async function measured(name: string, signal: AbortSignal): Promise<DelayResult> {
  try {
    const path = `${V1}/nodes/delay?name=${encodeURIComponent(name)}`;
    const answer = await call<{ delay: number; error?: string }>("GET", path, undefined, signal);
    return { delay: answer.delay, error: answer.error ?? "" };
  } catch (error) {
    return { delay: -1, error: error instanceof Refused ? error.message : "" };
  }
}

export const delays = new Delays();

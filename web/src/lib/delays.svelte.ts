/** Delay tests of nodes: a few at a time, with progress and cancellation. */

import { SvelteMap } from "svelte/reactivity";
import { Refused, call } from "./http.ts";
import { V1 } from "./paths.ts";
import { asOther, type Coded } from "./sentences.ts";
import type { Node } from "./types.ts";

/** Tests in parallel. A browser has 6 connections to a device, and the page needs some itself. */
const AT_ONCE = 3;

export interface DelayResult {
  /** Milliseconds, or -1 if the test failed. */
  delay: number;
  error: Coded | null;
}

type Result = DelayResult | "pending";

class Delays {
  /** The latest results by node id, with the configuration that was tested. */
  readonly #results = new SvelteMap<number, { config: string; result: Result }>();
  total = $state(0);
  done = $state(0);

  #abort: AbortController | null = null;

  get isRunning(): boolean {
    return this.done < this.total;
  }

  /** The latest result of a node with its current configuration. */
  of(node: Node): Result | undefined {
    const found = this.#results.get(node.id);
    return found?.config === node.config_json ? found.result : undefined;
  }

  /** Measure these nodes. A run in progress is cancelled. */
  async measure(nodes: readonly Node[]): Promise<void> {
    this.cancel();
    const abort = new AbortController();
    this.#abort = abort;
    this.total = nodes.length;
    this.done = 0;
    const waiting = [...nodes];
    const worker = async (): Promise<void> => {
      for (let node = waiting.shift(); node !== undefined; node = waiting.shift()) {
        const { id, config_json: config } = node;
        this.#results.set(id, { config, result: "pending" });
        const result = await measured(node.name, abort.signal);
        if (abort.signal.aborted) return;
        if (result) this.#results.set(id, { config, result });
        else this.#results.delete(id);
        this.done += 1;
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
  }

  /** Cancel the tests that have no result yet. */
  cancel(): void {
    this.#abort?.abort();
    this.#abort = null;
    for (const [id, { result }] of this.#results) {
      if (result === "pending") this.#results.delete(id);
    }
    this.total = this.done = 0;
  }

  /** Discard everything: another operator may log in. */
  clear(): void {
    this.cancel();
    this.#results.clear();
  }
}

/** Measure a node. Undefined if the device was not reached, or the session has ended. */
async function measured(name: string, signal: AbortSignal): Promise<DelayResult | undefined> {
  try {
    const path = `${V1}/nodes/delay?name=${encodeURIComponent(name)}`;
    const answer = await call<{ delay: number; error_coded?: Coded | null }>("GET", path, undefined, signal);
    return { delay: answer.delay, error: answer.error_coded ?? null };
  } catch (error) {
    if (!(error instanceof Refused) || error.status === 0 || error.status === 401) return undefined;
    return { delay: -1, error: asOther(error.message) };
  }
}

export const delays = new Delays();

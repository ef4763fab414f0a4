/** The latest changes of the device's configuration, newest first. */

import { call } from "./http.ts";
import { live } from "./live.svelte.ts";
import { OPS } from "./paths.ts";
import type { Change, Changes as Answer } from "./types.ts";

const FIRST_SHOWN = 12;
/** The most changes that the device returns in one answer. */
const MOST = 1000;
const GATHERED_MS = 300;

/** The list is created in a component and ends with it. */
export class Changes {
  rows = $state.raw<Change[]>([]);
  /** Number of changes requested: for the answer that is shown, and for the latest request. */
  #asked = $state(FIRST_SHOWN);
  #wanted = $state(FIRST_SHOWN);

  readonly hasMore = $derived(this.rows.length === this.#asked && this.#asked < MOST);
  readonly isLoadingMore = $derived(this.#wanted !== this.#asked);

  constructor() {
    // Each change causes an event, so nothing is polled. A burst of events causes one request.
    $effect(() => {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const load = (): void => {
        timer = undefined;
        void this.#load();
      };
      load();
      const stop = live.on("change", () => (timer ??= setTimeout(load, GATHERED_MS)));
      return () => {
        clearTimeout(timer);
        stop();
      };
    });
  }

  /** Show ten times as many. */
  more(): void {
    this.#wanted = Math.min(MOST, 10 * this.#asked);
  }

  async #load(): Promise<void> {
    const limit = this.#wanted;
    const path = `${OPS}/changes?limit=${limit}`;
    const answer = await call<Answer>("GET", path).catch(() => null);
    // A later request asks for more.
    if (limit !== this.#wanted) return;
    if (answer) [this.rows, this.#asked] = [answer.data, limit];
    // Allow the operator to repeat the request.
    else this.#wanted = this.#asked;
  }
}

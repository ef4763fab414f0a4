/** The traffic of each rule's clients, polled while a page shows it. */

import { call } from "./http.ts";
import { OPS } from "./paths.ts";
import type { RuleCounters, RuleTraffic } from "./types.ts";

const EVERY_MS = 3000;
/** Milliseconds between polls, per rule: reading many rules' counters costs the device time. */
const EVERY_MS_PER_RULE = 1;

class Counters {
  /** Counters of enabled rules, by the rule's address. */
  byIp = $state.raw<Record<string, RuleTraffic>>({});

  /** Poll until the returned function is called. For `$effect`. */
  watch(): () => void {
    let timer: ReturnType<typeof setTimeout>;
    let isWatched = true;
    const follow = async (): Promise<void> => {
      if (!document.hidden) await this.#load();
      if (!isWatched) return;
      const rules = Object.keys(this.byIp).length;
      timer = setTimeout(follow, Math.max(EVERY_MS, EVERY_MS_PER_RULE * rules));
    };
    void follow();
    return () => {
      isWatched = false;
      clearTimeout(timer);
    };
  }

  /** Bytes in both directions; 0 if nothing was counted. */
  total(ip: string): number {
    const counted = this.byIp[ip];
    return counted ? counted.upload_bytes + counted.download_bytes : 0;
  }

  async #load(): Promise<void> {
    try {
      this.byIp = (await call<RuleCounters>("GET", `${OPS}/counters`)).data;
    } catch {
      // Keep the last counters. The page shows elsewhere that the device does not answer.
    }
  }
}

export const counters = new Counters();

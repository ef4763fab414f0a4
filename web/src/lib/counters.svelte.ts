/** What each rule's clients exchanged: asked for again and again while a page shows it. */

import { call } from "./http.ts";
import { OPS } from "./paths.ts";
import type { RuleTraffic } from "./types.ts";

const EVERY_MS = 3000;
/** To read the counters of many rules costs the device something: it is asked less often then. */
const EVERY_MS_PER_RULE = 1;

class Counters {
  /** By the rule's address, as far as it is enabled. */
  byIp = $state.raw<Record<string, RuleTraffic>>({});

  /** Follow them until the function that this returns is called. For `$effect`. */
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

  /** Bytes in both directions; 0 where nothing was counted. */
  total(ip: string): number {
    const counted = this.byIp[ip];
    return counted ? counted.upload_bytes + counted.download_bytes : 0;
  }

  async #load(): Promise<void> {
    try {
      this.byIp = (
        await call<{ data: Record<string, RuleTraffic> }>("GET", `${OPS}/counters`)
      ).data;
    } catch {
      // What was counted a moment ago is better than nothing, and the page says when it is cut off.
    }
  }
}

export const counters = new Counters();

/** The last day of nodes and lines, loaded while a page shows it. */

import { call } from "./http.ts";
import { formatNumber, t } from "./language.svelte.ts";
import { uptimeOf, type Uptime } from "./past.ts";
import { OPS } from "./paths.ts";
import type { LinesHistory, LineTimeline, NodeDelayRow, NodesHistory } from "./types.ts";

/** Milliseconds between two loads: the pictures show hours. */
const RELOAD_MS = 120_000;

/** The part of the known time in which something was up, and the number of outages, as a text. */
export function uptimeText(past: Uptime): string {
  const { outages, share } = uptimeOf(past);
  if (share === null) return t("past.none");
  return t("past.uptime", { share: formatNumber(Math.floor(share * 1000) / 10), n: outages });
}

class Past<Answer, Row> {
  window = $state.raw({ from: "", to: "" });
  #path: string;
  #rowsOf: (answer: Answer) => Iterable<[string, Row]>;
  #byKey = $state.raw(new Map<string, Row>());

  constructor(path: string, rowsOf: (answer: Answer) => Iterable<[string, Row]>) {
    this.#path = path;
    this.#rowsOf = rowsOf;
  }

  of(key: string): Row | undefined {
    return this.#byKey.get(key);
  }

  /** Load the rows now and then until the returned function is called. For `$effect`. */
  watch(): () => void {
    const load = (): void => void this.#load();
    load();
    const timer = setInterval(() => document.hidden || load(), RELOAD_MS);
    return () => clearInterval(timer);
  }

  /** Discard everything: another operator may log in. */
  clear(): void {
    this.#byKey = new Map();
  }

  async #load(): Promise<void> {
    try {
      const answer = await call<Answer & { from: string; to: string }>("GET", this.#path);
      this.window = { from: answer.from, to: answer.to };
      this.#byKey = new Map(this.#rowsOf(answer));
    } catch {
      // The last pictures stay: they are of the past anyway.
    }
  }
}

export const pastNodes = new Past<NodesHistory, NodeDelayRow>(
  `${OPS}/history/nodes`,
  ({ data }) => data.map((row) => [row.name, row]),
);
export const pastLines = new Past<LinesHistory, LineTimeline>(
  `${OPS}/history/lines`,
  ({ data }) => data.map((row) => [`${row.type}/${row.name}`, row]),
);

/** Throughput over time, from snapshots of interfaces' byte counters. */

import type { Overview } from "./types.ts";

/** Samples that are kept: 15 minutes of snapshots, which arrive every 2 s. */
export const SAMPLES_MAX = 450;

interface Counters {
  received: number;
  sent: number;
}

/** Bits per second that an interface received and sent: one value per time, null if unknown. */
export interface Series {
  received: (number | null)[];
  sent: (number | null)[];
}

export class Rates {
  /** Unix times in seconds, ascending. */
  readonly times: number[] = [];
  readonly series = new Map<string, Series>();

  #before: { at: number; counters: Map<string, Counters> } | null = null;

  /** Add the rates since the last snapshot; if there are too many samples, drop the oldest. */
  take(overview: Pick<Overview, "at" | "interfaces">): void {
    const at = Date.parse(overview.at) / 1000;
    const counters = new Map(overview.interfaces.map((one) => [one.name, one]));
    // The device's clock was set back: times must ascend, so older samples are dropped.
    if (this.#before && at < this.#before.at) this.clear();
    const before = this.#before;
    this.#before = { at, counters };
    if (before === null || at === before.at) return;
    const seconds = at - before.at;
    this.times.push(at);
    for (const [name, now] of counters) {
      const rates = this.series.get(name) ?? this.#absentSoFar();
      this.series.set(name, rates);
      const then = before.counters.get(name);
      // Counters that fell belong to an interface that was created anew.
      const isSame = then && now.received >= then.received && now.sent >= then.sent;
      rates.received.push(isSame ? (8 * (now.received - then.received)) / seconds : null);
      rates.sent.push(isSame ? (8 * (now.sent - then.sent)) / seconds : null);
    }
    for (const [name, rates] of this.series) {
      if (!counters.has(name)) {
        rates.received.push(null);
        rates.sent.push(null);
      }
    }
    if (this.times.length > SAMPLES_MAX) this.#dropOldest();
  }

  /** The latest rate of an interface, received plus sent; 0 if unknown. */
  latest(name: string): number {
    const rates = this.series.get(name);
    return (rates?.received.at(-1) ?? 0) + (rates?.sent.at(-1) ?? 0);
  }

  /** Up to `count` of `names` with the most traffic, in the order of `names`. */
  busiest(names: readonly string[], count: number): string[] {
    const moved = new Map(
      names.map((name) => {
        const { received = [], sent = [] } = this.series.get(name) ?? {};
        return [name, total(received) + total(sent)];
      }),
    );
    const ranked = [...names].sort((a, b) => (moved.get(b) ?? 0) - (moved.get(a) ?? 0));
    const chosen = new Set(ranked.slice(0, count));
    return names.filter((name) => chosen.has(name));
  }

  /** The summed rates of `names`; null at times at which no rate is known. */
  together(names: readonly string[]): Series {
    const found = names.flatMap((name) => this.series.get(name) ?? []);
    const sum = (way: keyof Series): (number | null)[] =>
      this.times.map((_, at) => {
        const rates = found.map((one) => one[way][at] ?? null).filter((rate) => rate !== null);
        return rates.length > 0 ? total(rates) : null;
      });
    return { received: sum("received"), sent: sum("sent") };
  }

  clear(): void {
    this.times.length = 0;
    this.series.clear();
    this.#before = null;
  }

  #absentSoFar(): Series {
    const gap = new Array<null>(this.times.length - 1).fill(null);
    return { received: [...gap], sent: [...gap] };
  }

  #dropOldest(): void {
    this.times.shift();
    for (const [name, rates] of this.series) {
      rates.received.shift();
      rates.sent.shift();
      if (rates.received.every((rate) => rate === null)) this.series.delete(name);
    }
  }
}

function total(rates: readonly (number | null)[]): number {
  return rates.reduce<number>((sum, rate) => sum + (rate ?? 0), 0);
}

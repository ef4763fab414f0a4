/** Delays and states of the past as shapes of small pictures. */

import type { LineTimeline } from "./types.ts";

type States = LineTimeline["states"];
/** States, and the seconds of both kinds. */
export type Uptime = Pick<LineTimeline, "up_s" | "down_s" | "states">;

/** A part of a ribbon, in percent of its width. */
export interface Stretch {
  start: number;
  width: number;
  state: States[number]["state"];
}

/**
 * The path of an SVG through `values`, from the lowest to the highest on `height`, each a unit of
 * the width apart. It is interrupted where there is none.
 */
export function sparkPath(values: readonly (number | null)[], height: number): string {
  const known = values.filter((value) => value !== null);
  const least = Math.min(...known);
  const span = Math.max(...known) - least;
  let isDrawing = false;
  const parts: string[] = [];
  values.forEach((value, at) => {
    if (value === null) {
      isDrawing = false;
      return;
    }
    const y = span === 0 ? height / 2 : height * (1 - (value - least) / span);
    const next = values[at + 1] ?? null;
    // A value without neighbours is a short line, which is seen.
    const alone = !isDrawing && next === null ? "h0.5" : "";
    parts.push(`${isDrawing ? "L" : "M"}${at} ${Math.round(y * 10) / 10}${alone}`);
    isDrawing = true;
  });
  return parts.join("");
}

/** The states between two times, each as wide as it was long. */
export function stretchesOf(states: States, from: string, to: string): Stretch[] {
  const start = Date.parse(from);
  const length = Math.max(1, Date.parse(to) - start);
  const percent = (time: string): number => (100 * (Date.parse(time) - start)) / length;
  return states.map((one) => ({
    start: percent(one.from),
    width: percent(one.to) - percent(one.from),
    state: one.state,
  }));
}

/** The number of times that a part went down, and the part of the known time in which it was up. */
export function uptimeOf(timeline: Uptime): { outages: number; share: number | null } {
  const known_s = timeline.up_s + timeline.down_s;
  return {
    outages: timeline.states.filter((one) => one.state === "down").length,
    share: known_s > 0 ? timeline.up_s / known_s : null,
  };
}

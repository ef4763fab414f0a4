import type uPlot from "uplot";
import { formatRate } from "../lib/language.svelte.ts";

/** What charts of rates have in common. */

/** The computed colours of a palette's elements: a canvas does not support custom properties. */
export function coloursOf(palette: HTMLElement): string[] {
  return [...palette.children].map((one) => getComputedStyle(one).color);
}

/** The axes of time, whose labels are `times`, and of rates, with the colours of lines and text. */
export function axesOf(line: string, text: string, times: uPlot.Axis["values"]): uPlot.Axis[] {
  const axis: uPlot.Axis = {
    stroke: text,
    grid: { stroke: line, width: 1 },
    ticks: { show: false },
    font: "11px system-ui",
  };
  return [
    { ...axis, size: 32, space: 90, values: times },
    {
      ...axis,
      size: 74,
      values: (_, splits) => splits.map((rate) => formatRate(Math.abs(rate))),
    },
  ];
}

/** The options that are the same in each chart, which shows no more than its curves. */
export const BARE = {
  height: 220,
  legend: { show: false },
  cursor: { show: false },
  padding: [8, 4, 0, 0],
} satisfies Partial<uPlot.Options>;

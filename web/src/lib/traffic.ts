/** The history of traffic as columns for a chart. */

import type { TrafficHistory } from "./types.ts";

const SECONDS: Readonly<Record<TrafficHistory["step"], number>> = {
  "1m": 60,
  "15m": 900,
  "1h": 3600,
  "1d": 86_400,
};

type Column = (number | null)[];

/** The window of a history in Unix time. */
export function windowOf(traffic: TrafficHistory): { start: number; end: number } {
  return { start: Date.parse(traffic.from) / 1000, end: Date.parse(traffic.to) / 1000 };
}

/**
 * The starts of all slots of the window in Unix time, and the average bits per second in each:
 * received, and sent as negative numbers. A slot without a record has null.
 */
export function trafficColumns(traffic: TrafficHistory): [number[], Column, Column] {
  const { start, end } = windowOf(traffic);
  const step_s = SECONDS[traffic.step];
  const bySlot = new Map(traffic.data.map((point) => [Date.parse(point.at) / 1000, point]));
  const times: number[] = [];
  const received: Column = [];
  const sent: Column = [];
  for (let at = Math.floor(start / step_s) * step_s; at < end; at += step_s) {
    const point = bySlot.get(at);
    // The last slot has not ended: its average is that of the time so far.
    const seconds = Math.max(1, Math.min(step_s, end - at));
    times.push(at);
    received.push(point ? (8 * point.download_bytes) / seconds : null);
    sent.push(point ? (-8 * point.upload_bytes) / seconds : null);
  }
  return [times, received, sent];
}

/** The values that forms send. Pure. */

import { parseConfig } from "./node_config.ts";

/**
 * Merge a form's values: a field is taken from `draft` if it differs from `before`, else from
 * `now`, which other sessions may have changed meanwhile. Texts that are JSON objects are merged
 * by their fields.
 */
export function rebased<T extends object>(before: T, draft: T, now: T): T {
  const result = { ...draft };
  for (const field of Object.keys(draft) as (keyof T)[]) {
    if (!(field in now)) continue;
    if (isSame(draft[field], before[field])) result[field] = now[field];
    else result[field] = rebasedText(before[field], draft[field], now[field]);
  }
  return result;
}

function rebasedText<V>(before: V, draft: V, now: V): V {
  const [was, typed, is] = [before, draft, now].map(objectOf);
  if (!was || !typed || !is || isSame(before, now)) return draft;
  const result = { ...is };
  for (const field of Object.keys({ ...was, ...typed })) {
    if (isSame(was[field], typed[field])) continue;
    if (field in typed) result[field] = typed[field];
    else delete result[field];
  }
  return JSON.stringify(result) as V;
}

const objectOf = (value: unknown) => (typeof value === "string" ? parseConfig(value) : null);

const isSame = (one: unknown, other: unknown): boolean =>
  JSON.stringify(one) === JSON.stringify(other);

/** The typed number. Other text is sent unchanged: the device's error says what it accepts. */
export function numeric(typed: string): number | string {
  const text = typed.trim();
  return /^\d+$/.test(text) ? Number(text) : text;
}

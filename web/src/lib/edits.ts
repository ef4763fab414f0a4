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

/** The fields of `draft` that differ from `before`, with the values that `rebased` gives them. */
export function changedFields<T extends object>(before: T, draft: T, now: T): Partial<T> {
  const values = rebased(before, draft, now);
  const result: Partial<T> = {};
  for (const field of Object.keys(draft) as (keyof T)[])
    if (!isSame(draft[field], before[field])) result[field] = values[field];
  return result;
}

/**
 * The values of `now` that another has changed since `seen`, and that are typed differently: by
 * pointer without the first slash. Texts that are JSON objects are compared by their fields.
 */
export function overtaken<T extends object>(
  seen: T,
  before: T,
  draft: T,
  now: T,
): Record<string, unknown> {
  const found: Record<string, unknown> = {};
  const look = (was: unknown, first: unknown, typed: unknown, is: unknown, at: string): void => {
    if (isSame(typed, first) || isSame(is, was) || isSame(is, typed)) return;
    const objects = [was, first, typed, is].map(objectOf);
    const [seenOne, firstOne, typedOne, isOne] = objects;
    if (seenOne && firstOne && typedOne && isOne) {
      for (const field of Object.keys({ ...firstOne, ...typedOne, ...isOne }))
        look(seenOne[field], firstOne[field], typedOne[field], isOne[field], `${at}/${field}`);
    } else found[at] = is ?? "";
  };
  for (const field of Object.keys(draft) as (keyof T & string)[])
    if (field in now) look(seen[field], before[field], draft[field], now[field], field);
  return found;
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

/** What forms send. Pure. */

/**
 * `draft` where it differs from what it began with, and what is there `now` elsewhere: others may
 * have changed that meanwhile.
 */
export function rebased<T extends object>(before: T, draft: T, now: T): T {
  const result = { ...draft };
  for (const field of Object.keys(draft) as (keyof T)[]) {
    const isChanged = JSON.stringify(draft[field]) !== JSON.stringify(before[field]);
    if (!isChanged && field in now) result[field] = now[field];
  }
  return result;
}

/** The number that was typed; what is none goes to the device as it is, which says what it takes. */
export function numeric(typed: string): number | string {
  const text = typed.trim();
  return /^\d+$/.test(text) ? Number(text) : text;
}

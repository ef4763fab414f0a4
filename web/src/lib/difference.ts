/** The difference that brings a list up to date. Pure. */

export interface Difference<T> {
  /** New and changed rows, identified by id. */
  changed: T[];
  /** Ids of rows that no longer exist. */
  gone: number[];
}

/** Apply a difference to rows, ordered by id. If it is empty, the same array is returned. */
export function merged<T extends { id: number }>(
  rows: T[],
  { changed, gone }: Difference<T>,
): T[] {
  if (changed.length === 0 && gone.length === 0) return rows;
  const lost = new Set(gone);
  const put = new Map(changed.map((row) => [row.id, row]));
  const kept = rows.filter((row) => !lost.has(row.id) && !put.has(row.id));
  return [...kept, ...changed].sort((a, b) => a.id - b.id);
}

/** What a list has to be told to be up to date. Pure. */

export interface Difference<T> {
  /** Rows that are new or another, by id. */
  changed: T[];
  /** Ids of rows that are there no more. */
  gone: number[];
}

/** The rows, by id, with what is different; the very same where nothing is. */
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

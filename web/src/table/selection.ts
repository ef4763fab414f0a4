/**
 * Selection of table rows by key: other sessions add and delete rows, and live values change the
 * order. `keys` are those of the rows as they are shown. Pure.
 */

/** The rows that the next key or click refers to; null without one. */
export interface Marks {
  /** The row on which the keyboard acts. */
  readonly active: number | null;
  /** The row at which a range begins. */
  readonly anchor: number | null;
}

export const NO_MARKS: Marks = { active: null, anchor: null };

/** The index of a key's row; -1 if the row is not shown. */
export function indexOf(keys: readonly number[], wanted: number | null): number {
  return wanted === null ? -1 : keys.indexOf(wanted);
}

/** True if there are rows and all are selected. */
export function isAllSelected(keys: readonly number[], selected: ReadonlySet<number>): boolean {
  return keys.length > 0 && keys.every((key) => selected.has(key));
}

/** Select all rows, or none of them if all are selected. */
export function toggleAll(keys: readonly number[], selected: Set<number>): void {
  selectRange(keys, selected, 0, keys.length - 1, !isAllSelected(keys, selected));
}

/** Toggle a row; with `hasRange`, set all rows from the anchor to this one to the same state. */
export function toggle(
  keys: readonly number[],
  selected: Set<number>,
  marks: Marks,
  index: number,
  hasRange: boolean,
): Marks {
  const key = keys[index];
  if (key === undefined) return marks;
  const anchor = hasRange ? indexOf(keys, marks.anchor) : -1;
  selectRange(keys, selected, anchor >= 0 ? anchor : index, index, !selected.has(key));
  return { active: key, anchor: key };
}

/** Make the row nearest to an index the active one. */
export function moveTo(keys: readonly number[], marks: Marks, to: number): Marks {
  const active = keys[Math.max(0, Math.min(keys.length - 1, to))] ?? marks.active;
  return { active, anchor: null };
}

/** Move as `moveTo`, and select from the anchor, where the first such move began, to there. */
export function extendTo(
  keys: readonly number[],
  selected: Set<number>,
  marks: Marks,
  to: number,
): Marks {
  const before = indexOf(keys, marks.active);
  const { active } = moveTo(keys, marks, to);
  const anchor = indexOf(keys, marks.anchor);
  const from = anchor >= 0 ? anchor : Math.max(0, before);
  const key = keys[from];
  if (key === undefined) return { ...marks, active };
  if (before >= 0) selectRange(keys, selected, from, before, false);
  selectRange(keys, selected, from, indexOf(keys, active), true);
  return { active, anchor: key };
}

function selectRange(
  keys: readonly number[],
  selected: Set<number>,
  from: number,
  to: number,
  isWanted: boolean,
): void {
  for (const key of keys.slice(Math.min(from, to), Math.max(from, to) + 1)) {
    if (isWanted) selected.add(key);
    else selected.delete(key);
  }
}

/** The selected rows that still exist, for batch calls. */
export function chosenOf<Row extends { id: number }>(
  rows: readonly Row[],
  selected: ReadonlySet<number>,
): Row[] {
  return selected.size === 0 ? [] : rows.filter((row) => selected.has(row.id));
}

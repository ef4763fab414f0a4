/** The selected rows that still exist, for batch calls. */
export function chosenOf<Row extends { id: number }>(
  rows: readonly Row[],
  selected: ReadonlySet<number>,
): Row[] {
  return selected.size === 0 ? [] : rows.filter((row) => selected.has(row.id));
}

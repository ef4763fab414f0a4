/** Arithmetic of a list that has elements only for the rows in view. Offsets are pixels. Pure. */

/** Number of rows above and below the view that also have elements. */
const OVERSCAN = 4;
/** The least space for an editor between its top and the lower end of the view. */
const EDITOR_SPACE = 200;
/** The space above an editor that was scrolled into view. */
const EDITOR_MARGIN = 80;

/** The rows that have elements: as many as there are slots, from the row `first` on. */
export interface RowWindow {
  first: number;
  slots: number;
}

/** The window of a view of `height` that is scrolled by `top`. */
export function rowWindow(top: number, height: number, rowHeight: number): RowWindow {
  return {
    first: Math.max(0, Math.floor(top / rowHeight) - OVERSCAN),
    slots: Math.ceil(height / rowHeight) + 1 + 2 * OVERSCAN,
  };
}

/** The index of the row in a slot. A row keeps its slot as long as it is in the window. */
export function indexInSlot(slot: number, { first, slots }: RowWindow): number {
  return first + ((slot - (first % slots) + slots) % slots);
}

/**
 * The row of each slot, after `before`. A slot beyond the last row keeps the row that it had, and a
 * slot that had none is a hole in the array.
 */
export function filledSlots<Row>(
  before: readonly Row[],
  rows: readonly Row[],
  { first, slots }: RowWindow,
): Row[] {
  const filled = before.slice(0, slots);
  rows.slice(first, first + slots).forEach((row, at) => (filled[(first + at) % slots] = row));
  return filled;
}

/** The scroll offset nearest to `top` at which a row is in full view. */
export function scrolledToRow(
  index: number,
  rowHeight: number,
  top: number,
  height: number,
): number {
  const from = index * rowHeight;
  return Math.max(Math.min(top, from), from + rowHeight - height);
}

/** The scroll offset at which an editor that begins at `from` is in view. */
export function scrolledToEditor(from: number, top: number, height: number): number {
  const isInView = from >= top && from <= top + height - EDITOR_SPACE;
  return isInView ? top : Math.max(0, from - EDITOR_MARGIN);
}

/** A table's size, and the elements of the rows in view. */

import { filledSlots, indexInSlot, rowWindow } from "./window.ts";

/** The width in pixels below which each row is a card. */
const NARROW = 700;

/** An element, and the row that it shows; a spare one is hidden and keeps the row of before. */
export interface Slot<Row> {
  slot: number;
  row: Row;
  index: number;
  isShown: boolean;
}

export class VirtualRows<Row> {
  /** Pixels; the table binds these to its elements. */
  width = $state(0);
  height = $state(0);
  top = $state(0);

  readonly isNarrow = $derived(this.width > 0 && this.width < NARROW);
  readonly rowHeight = $derived(this.isNarrow ? 64 : 38);
  readonly headHeight = $derived(this.isNarrow ? 0 : 36);
  /** Number of rows that Page Up and Page Down pass. */
  readonly page = $derived(Math.max(1, Math.floor(this.height / this.rowHeight) - 1));
  readonly slots = $derived.by<Slot<Row>[]>(() => {
    const rows = this.#rows();
    this.#filled = filledSlots(this.#filled, rows, this.#window);
    // `flatMap` skips the array's holes: elements that were not needed yet.
    return this.#filled.flatMap((row, slot) => {
      const index = indexInSlot(slot, this.#window);
      return [{ slot, row, index, isShown: index < rows.length }];
    });
  });

  #rows: () => readonly Row[];
  #filled: Row[] = [];
  readonly #window = $derived(rowWindow(this.top, this.height, this.rowHeight));

  constructor(rows: () => readonly Row[]) {
    this.#rows = rows;
  }

  /** True if the row of this index has an element. */
  hasElement(index: number): boolean {
    const { first, slots } = this.#window;
    return index >= first && index < first + slots;
  }
}

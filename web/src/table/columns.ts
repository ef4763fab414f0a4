/** A column of a table. */
export interface Column<Row> {
  id: string;
  label: string;
  /** A track of CSS grid. */
  width: string;
  align?: "end";
  /** Pixels that the table must be wide for the column to have a place in it. */
  from?: number;
  /** What the column is sorted by; without it, it is not. */
  sort?: (row: Row) => string | number;
}

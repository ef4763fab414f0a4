/** A column of a table. */
export interface Column<Row> {
  id: string;
  label: string;
  /** A track size of CSS grid. */
  width: string;
  align?: "end";
  /** Pixels: the column is hidden in a narrower table. */
  from?: number;
  /** The sort key of a row; a column without it cannot be sorted. */
  sort?: (row: Row) => string | number;
}

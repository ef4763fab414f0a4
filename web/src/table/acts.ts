/** Actions of a list's page on its rows. */

import type { Said } from "../lib/types.ts";

/** Actions on rows of a list, one or many. */
export interface Acts<Row> {
  /** The question before rows are deleted; its text also warns before several are disabled. */
  warning: (rows: Row[]) => { title: string; text: string };
  delete: (rows: Row[]) => Promise<Said>;
  /** Present only if rows have a switch. */
  enable?: (rows: Row[], isEnabled: boolean) => Promise<Said>;
  export: (rows: readonly Row[]) => void;
}

/** Rows that a question names. */
const NAMED_MAX = 10;

/** The names of the first rows, or their addresses, and of how many others. */
export function named(rows: readonly object[]): { names: string; n: number } {
  const names = rows.slice(0, NAMED_MAX).map((row) => {
    const { name, ip } = row as { name?: string; ip?: string };
    return name ?? ip ?? "";
  });
  return { names: names.join(", "), n: rows.length - names.length };
}

/** Labels of a row's buttons; each contains the row's name. */
export interface Labels {
  edit: string;
  delete: string;
  enable?: string;
}

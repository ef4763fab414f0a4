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

/** Labels of a row's buttons; each contains the row's name. */
export interface Labels {
  edit: string;
  delete: string;
  enable?: string;
}

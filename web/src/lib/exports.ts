/** Lists as files that an import takes. */

import { feedback } from "./feedback.svelte.ts";
import { csvRow, download } from "./files.ts";
import { t } from "./language.svelte.ts";

interface Switched {
  is_enabled: boolean;
}

/** Rows of fields. Those that are off are comments, since an import enables what it takes. */
export function rowsText<Row extends Switched>(
  rows: readonly Row[],
  fieldsOf: (row: Row) => readonly (string | number)[],
): string {
  return rows.map((row) => `${row.is_enabled ? "" : "# "}${csvRow(fieldsOf(row))}\n`).join("");
}

/** Keep rows as a file. Without the mark, Excel takes UTF-8 for the system's own encoding. */
export function downloadRows(name: string, text: string): void {
  download(name, `\ufeff${text}`, "text/csv");
}

/** Say what an import of these rows would not bring back; `lost` is what their form cannot hold. */
export function sayWhatIsLost(rows: readonly Switched[], lost = ""): void {
  const off = rows.filter((row) => !row.is_enabled).length;
  const said = [...(off > 0 ? [t("export.off", { n: off })] : []), ...(lost ? [lost] : [])];
  if (said.length > 0) feedback.say([...said, t("export.backup")].join(" "));
}

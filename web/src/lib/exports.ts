/** Lists as files that an import accepts. */

import { feedback } from "./feedback.svelte.ts";
import { csvRow, download } from "./files.ts";
import { t } from "./language.svelte.ts";

interface Switched {
  is_enabled: boolean;
}

/** Format rows. Disabled rows become comments, because an import enables its rows. */
export function rowsText<Row extends Switched>(
  rows: readonly Row[],
  fieldsOf: (row: Row) => readonly (string | number)[],
): string {
  return rows.map((row) => `${row.is_enabled ? "" : "# "}${csvRow(fieldsOf(row))}\n`).join("");
}

/** Download rows. Without a byte order mark, Excel reads UTF-8 as the system's own encoding. */
export function downloadRows(name: string, text: string): void {
  download(name, `\ufeff${text}`, "text/csv");
}

/** Show what an import of these rows does not restore; `lost` names what their format omits. */
export function sayWhatIsLost(rows: readonly Switched[], lost = ""): void {
  const off = rows.filter((row) => !row.is_enabled).length;
  const said = [...(off > 0 ? [t("export.off", { n: off })] : []), ...(lost ? [lost] : [])];
  if (said.length > 0) feedback.say([...said, t("export.backup")].join(" "));
}

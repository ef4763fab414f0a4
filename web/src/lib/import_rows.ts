/** The rows of an import's text, counted as the device counts them. */

export interface ImportRow {
  /** From 1. */
  line: number;
  text: string;
}

/** Blank lines and lines that begin with `#` are passed over. */
export function numberedRows(text: string): ImportRow[] {
  const rows = text.replace(/^\ufeff/, "").split("\n");
  return rows
    .map((row, at) => ({ line: at + 1, text: row.trim() }))
    .filter((row) => row.text !== "" && !row.text.startsWith("#"));
}

/** The device's reasons, each `line N: why`, by line. */
export function problemsByLine(errors: readonly string[]): Map<number, string> {
  const found = new Map<number, string>();
  for (const error of errors) {
    const match = /^line (\d+): (.*)$/s.exec(error);
    if (match) found.set(Number(match[1]), match[2] ?? "");
  }
  return found;
}

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

const OF_A_LINE = /^line (\d+): (.*)$/s;

/** Texts of the device that begin with `line N: `, without that, by line. */
export function textsByLine(texts: readonly string[]): Map<number, string> {
  const found = new Map<number, string>();
  for (const text of texts) {
    const match = OF_A_LINE.exec(text);
    if (match) found.set(Number(match[1]), match[2] ?? "");
  }
  return found;
}

/** The other texts, which are of no single line. */
export function textsOfNoLine(texts: readonly string[]): string[] {
  return texts.filter((text) => !OF_A_LINE.test(text));
}

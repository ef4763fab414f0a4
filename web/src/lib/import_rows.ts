/** The rows of an import's text, numbered as the device numbers them. */

import type { Fault } from "./faults.ts";
import type { BadRow } from "./types.ts";

export interface ImportRow {
  /** Line number, from 1. */
  line: number;
  text: string;
}

/** Invisible characters of joined or copied texts. `\s` includes the byte order mark. */
const BLANK = "[\\s\\u200b-\\u200f\\u202a-\\u202e\\u2060-\\u2064\\u2066-\\u2069\\u00ad\\u061c\\u180e]+";
const UNSEEN = new RegExp(`^${BLANK}|${BLANK}$`, "g");

/** Split a text into rows; skip blank lines and lines that begin with `#`. */
export function numberedRows(text: string): ImportRow[] {
  return text
    .split("\n")
    .map((row, at) => ({ line: at + 1, text: row.replace(UNSEEN, "") }))
    .filter((row) => row.text !== "" && !row.text.startsWith("#"));
}

/** Group the faults of bad rows by line; one line may hold several rows. */
export function faultsByLine(rows: readonly BadRow[]): Map<number, Fault[]> {
  const found = new Map<number, Fault[]>();
  for (const { line, errors } of rows) found.set(line, [...(found.get(line) ?? []), ...errors]);
  return found;
}

const OF_A_LINE = /^line (\d+): (.*)$/s;

/** Texts that begin with `line N: `, without it, by line; several texts of a line are joined. */
export function textsByLine(texts: readonly string[]): Map<number, string> {
  const found = new Map<number, string>();
  for (const text of texts) {
    const match = OF_A_LINE.exec(text);
    if (!match) continue;
    const [line, words] = [Number(match[1]), match[2] ?? ""];
    const before = found.get(line);
    found.set(line, before === undefined ? words : `${before}; ${words}`);
  }
  return found;
}

/** The other texts, which do not belong to a single line. */
export function textsOfNoLine(texts: readonly string[]): string[] {
  return texts.filter((text) => !OF_A_LINE.test(text));
}

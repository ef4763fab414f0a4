/** The rows of an import's text, numbered as the device numbers them. */

import type { Fault } from "./faults.ts";
import type { Coded } from "./sentences.ts";
import type { BadRow, RowFate } from "./types.ts";

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

/** Group the fates of rows that can be read by line. */
export function fatesByLine(rows: readonly RowFate[]): Map<number, RowFate[]> {
  const found = new Map<number, RowFate[]>();
  for (const row of rows) {
    const before = found.get(row.line);
    if (before) before.push(row);
    else found.set(row.line, [row]);
  }
  return found;
}

const OF_ROW = "of-row";

/** The notes on single rows by line. */
export function notesByLine(notes: readonly Coded[]): Map<number, Coded[]> {
  const found = new Map<number, Coded[]>();
  for (const { code, values } of notes) {
    const [line, note] = [values["line"], values["note"]];
    if (code !== OF_ROW || typeof line !== "number") continue;
    found.set(line, [...(found.get(line) ?? []), note as Coded]);
  }
  return found;
}

/** The other notes, which do not belong to a single row. */
export function notesOfNoLine(notes: readonly Coded[]): Coded[] {
  return notes.filter(({ code }) => code !== OF_ROW);
}

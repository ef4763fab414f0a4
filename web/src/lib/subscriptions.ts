/** Fields of subscriptions as their form has them, and what a refresh would do, in order. Pure. */

import type { AccountQuota, ListedFate } from "./schemas.ts";

/** A row of a form: a header field with its value, or a pattern with the text that replaces it. */
export interface Pair {
  key: string;
  value: string;
}

export type Fate = ListedFate["fate"];

/** What breaks something first, what stays as it is last. */
const FATES: readonly Fate[] = ["kept", "deleted", "added", "changed", "renamed", "passed", "same"];

export function pairsOf(fields: Readonly<Record<string, string>>): Pair[] {
  return Object.entries(fields).map(([key, value]) => ({ key, value }));
}

/** The rows as the API takes them; one without any text is left out. */
export function fieldsOf(pairs: readonly Pair[]): Record<string, string> {
  const typed = pairs.filter(({ key, value }) => key !== "" || value !== "");
  return Object.fromEntries(typed.map(({ key, value }) => [key, value]));
}

/** The first key that stands in two rows: an object has only one of them. Empty if there is none. */
export function repeatedKey(pairs: readonly Pair[]): string {
  const keys = pairs.map(({ key }) => key);
  return keys.find((key, at) => key !== "" && keys.indexOf(key) < at) ?? "";
}

/** The used part of a quota in percent, 100 at most; null if the server does not name it. */
export function usedPercent({ used, total }: AccountQuota): number | null {
  return used === null || !total ? null : Math.min(100, Math.floor((100 * used) / total));
}

/** The nodes by what becomes of them, without fates that none of them has. */
export function byFate(nodes: readonly ListedFate[]): { fate: Fate; nodes: ListedFate[] }[] {
  return FATES.map((fate) => ({
    fate,
    nodes: nodes.filter((node) => node.fate === fate),
  })).filter((group) => group.nodes.length > 0);
}

/** The page's language: message catalogues, numbers and times. */

import { en, type Key } from "../messages/en.ts";
import { asSentence, type Fault, withLabels } from "./faults.ts";
import { LABELS } from "./labels.ts";
import { Sentences, type Coded } from "./sentences.ts";

export type Language = "en" | "zh-CN";
type Values = Record<string, string | number>;

const STORED = "egressd.language";

let chinese: typeof import("../messages/chinese.ts") | undefined;
let language = $state<Language>("en");

function initial(): Language {
  const chosen = localStorage.getItem(STORED) ?? navigator.language;
  return chosen.toLowerCase().startsWith("zh") ? "zh-CN" : "en";
}

/** The language in use. */
export function currentLanguage(): Language {
  return language;
}

/** Switch the page to a language, and store the choice in this browser. */
export async function useLanguage(wanted: Language): Promise<void> {
  localStorage.setItem(STORED, wanted);
  await show(wanted);
}

/** Show the page in the language that this browser has chosen. Await it before the first text. */
export async function showLanguage(): Promise<void> {
  await show(initial());
}

/** Load a language's texts, then show them and set the document's `lang` attribute. */
async function show(wanted: Language): Promise<void> {
  if (wanted === "zh-CN") chinese ??= await import("../messages/chinese.ts");
  language = wanted;
  document.documentElement.lang = language;
}

/** Return a message with `{name}` replaced. `{n}` also selects a form: `one | other`. */
export function t(key: Key, values: Values = {}): string {
  const messages: Record<Key, string> = (language === "zh-CN" && chinese?.zh) || en;
  const forms = messages[key].split(" | ");
  const text = (values["n"] === 1 ? forms[0] : forms.at(-1)) ?? key;
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = values[name];
    if (value === undefined) return whole;
    return typeof value === "number" ? formatNumber(value) : value;
  });
}

let sentences: Sentences | undefined;

/** Return a sentence of the device in the page's language; empty for none. */
export function said(sentence: Coded | null | undefined): string {
  if (!sentence) return "";
  if (language === "en" || !chinese) return sentence.text;
  return (sentences ??= new Sentences(chinese.sentencesZh, chinese.wordsZh)).translated(sentence);
}

/** Return sentences in the page's language, joined to one text. */
export function saidAll(several: readonly Coded[]): string {
  return several.map(said).join(language === "en" ? "; " : "；");
}

/** Return faults in the page's language, joined to one text, with the labels of their fields. */
export function toldFaults(
  faults: readonly Fault[],
  labels: Readonly<Record<string, Key>> = {},
): string {
  const used = new Set<string>();
  const labelOf = (field: string): string | undefined => {
    const key = labels[field] ?? LABELS[field];
    // Without a remark in brackets.
    const label = key && t(key).replace(/ *[(（].*/, "");
    if (label) used.add(label);
    return label;
  };
  let text = withLabels(saidAll(faults.map((fault) => asSentence(fault, labelOf))), labelOf);
  // Chinese sets a space between its own words and names of fields, which are Latin, only.
  for (const label of used)
    if (/\p{sc=Han}$/u.test(label))
      text = text.replace(new RegExp(`(${label}) (?=\\p{sc=Han})`, "gu"), "$1");
  return text;
}

const numbers: Record<Language, Intl.NumberFormat> = {
  en: new Intl.NumberFormat("en"),
  "zh-CN": new Intl.NumberFormat("zh-CN"),
};

/** Format a number as the page's language writes it. */
export function formatNumber(value: number): string {
  return numbers[language].format(value);
}

/** Format bytes in units of 1024, as memory is counted. */
export function formatBytes(value: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(unit > 0 && value < 100 ? 1 : 0)} ${units[unit]}`;
}

/** Format bits per second in units of 1000, as links are sold. */
export function formatRate(bits: number): string {
  const units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"];
  let unit = 0;
  while (bits >= 1000 && unit < units.length - 1) {
    bits /= 1000;
    unit += 1;
  }
  return `${bits.toFixed(unit > 0 && bits < 100 ? 1 : 0)} ${units[unit]}`;
}

/** Format a rule's limit in kbit/s: `20 Mbit/s`, or "unlimited" for 0. */
export function formatLimit(kbps: number): string {
  return kbps === 0 ? t("unlimited") : formatRate(kbps * 1000).replace(/\.0 /, " ");
}

const STYLES = {
  clock: { hour: "2-digit", minute: "2-digit" },
  day: { month: "short", day: "numeric" },
  date: { month: "short", day: "numeric", year: "numeric" },
  moment: { dateStyle: "medium", timeStyle: "medium" },
} satisfies Record<string, Intl.DateTimeFormatOptions>;
const formatters = new Map<string, Intl.DateTimeFormat>();

/** Format a time. Formatters are cached: creating one takes longer than the rest of a table row. */
function formatted(when: Date, style: keyof typeof STYLES): string {
  const key = `${language} ${style}`;
  let formatter = formatters.get(key);
  if (formatter === undefined) {
    formatter = new Intl.DateTimeFormat(language, STYLES[style]);
    formatters.set(key, formatter);
  }
  return formatter.format(when);
}

/** Format a time for a column: time of day if it is today, else date. `formatMoment` gives both. */
export function formatTime(iso: string): string {
  const when = new Date(iso);
  if (Number.isNaN(when.getTime())) return iso;
  const now = new Date();
  if (when.toDateString() === now.toDateString()) return formatted(when, "clock");
  return formatted(when, when.getFullYear() === now.getFullYear() ? "day" : "date");
}

/** Format a time as date and time of day, to the second. */
export function formatMoment(iso: string): string {
  const when = new Date(iso);
  if (Number.isNaN(when.getTime())) return iso;
  return formatted(when, "moment");
}

const DURATIONS: readonly [seconds: number, key: Key][] = [
  [86_400, "unit.days"],
  [3600, "unit.hours"],
  [60, "unit.minutes"],
  [1, "unit.seconds"],
];

/** Format seconds in the largest unit that is not zero, and in the next smaller one. */
export function formatDuration(seconds: number): string {
  const largest = DURATIONS.findIndex(([size]) => seconds >= size);
  const parts: string[] = [];
  for (const [size, key] of DURATIONS.slice(largest).slice(0, 2)) {
    parts.push(t(key, { n: Math.floor(seconds / size) }));
    seconds %= size;
  }
  return parts.join(" ");
}

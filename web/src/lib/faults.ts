/** The faults that the device finds in a request: their fields and codes. Pure. */

import type { ProblemError } from "./schemas.ts";
import type { Coded, Values } from "./sentences.ts";

/**
 * One of the `errors` of a problem document (RFC 9457), as docs/api.md describes them: a JSON
 * pointer (RFC 6901) to the field, empty for none, a code with values, and a sentence in English.
 */
export type Fault = Omit<ProblemError, "values"> & { values: Values };

/**
 * Group faults by field: the longest of `fields` that leads to the fault's, such as `ip` or
 * `config_json/port`. Faults of no field in the list are under "".
 */
export function byField(
  faults: readonly Fault[],
  fields: readonly string[],
): Record<string, Fault[]> {
  const found: Record<string, Fault[]> = {};
  for (const fault of faults) {
    const field = fields
      .filter((one) => `${fault.pointer}/`.startsWith(`/${one}/`))
      .reduce((longest, one) => (one.length > longest.length ? one : longest), "");
    (found[field] ??= []).push(fault);
  }
  return found;
}

/** Spell a field as the device's sentences do: `items[2].name`, and `body` for all of it. */
export function fieldOf(pointer: string): string {
  const steps = pointer.split("/").slice(1);
  if (steps.length === 0) return "body";
  return steps
    .map((step, at) => {
      const name = step.replaceAll("~1", "/").replaceAll("~0", "~");
      if (at > 0 && /^\d+$/.test(name)) return `[${name}]`;
      return at === 0 ? name : `.${name}`;
    })
    .join("");
}

/** Return the label of a field, which is a name or a pointer without the first slash. */
type LabelOf = (field: string) => string | undefined;

/** Return a fault as a sentence with its field, and fields that it speaks of, by their labels. */
export function asSentence(fault: Fault, labelOf: LabelOf = () => undefined): Coded {
  const { pointer, code, detail } = fault;
  const spelled = fieldOf(pointer);
  const field = labelAt(pointer, labelOf);
  const values: Record<string, Values[string]> = { ...fault.values, field };
  let text = withWord(detail, spelled, field);
  const parent = pointer.slice(1, pointer.lastIndexOf("/") + 1);
  for (const name of ["other", "profile"] as const) {
    const value = values[name];
    if (typeof value !== "string") continue;
    const label = labelOf(parent + value) ?? labelOf(value);
    if (label === undefined) continue;
    text = withWord(text, value, label);
    values[name] = label;
  }
  return { code, values, text };
}

/** Replace the names of fields that no other word can be, as they have an underscore. */
export function withLabels(text: string, labelOf: LabelOf): string {
  return text.replace(/\b[a-z]+(?:_[a-z]+)+\b/g, (name) => labelOf(name) ?? name);
}

/** Return the label of the longest part of a pointer that has one, and spell the rest. */
function labelAt(pointer: string, labelOf: LabelOf): string {
  const steps = pointer.split("/").slice(1);
  for (let n = steps.length; n > 0; n -= 1) {
    const label = labelOf(steps.slice(0, n).join("/"));
    if (label === undefined) continue;
    const rest = steps.slice(n);
    if (rest.length === 0) return label;
    const [only, another] = rest;
    // An entry of a list by its place; a key within an object goes by its own name.
    if (only !== undefined && another === undefined && /^\d+$/.test(only))
      return `${label} ${Number(only) + 1}`;
    return fieldOf(`/${rest.join("/")}`);
  }
  return fieldOf(pointer);
}

/** Replace the first place where `word` stands by itself. */
function withWord(text: string, word: string, label: string): string {
  const quoted = word.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  return text.replace(new RegExp(`(?<![\\w.])${quoted}(?!\\w)`), () => label);
}

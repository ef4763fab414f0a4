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

/** Return a fault as a sentence, which has its field among its values. */
export function asSentence({ pointer, code, values, detail }: Fault): Coded {
  return { code, values: { ...values, field: fieldOf(pointer) }, text: detail };
}

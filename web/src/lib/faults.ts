/** The faults that the device finds in a request: their fields and codes. Pure. */

import type { DeviceWords } from "./device_words.ts";
import type { ProblemError } from "./schemas.ts";

/**
 * One of the `errors` of a problem document (RFC 9457), as docs/api.md describes them: a JSON
 * pointer (RFC 6901) to the field, empty for none, a code with values, and a sentence in English.
 */
export type Fault = ProblemError;

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

/** Translation of faults by their codes. */
export class FaultWords {
  #catalogue: Readonly<Record<string, string>>;
  #words: DeviceWords;

  /**
   * `catalogue` has a sentence for each code, with `{field}` and the fault's values in braces.
   * `words` translates a value such as `{>reason}`, which is a sentence of the device.
   */
  constructor(catalogue: Readonly<Record<string, string>>, words: DeviceWords) {
    this.#catalogue = catalogue;
    this.#words = words;
  }

  /** Return the fault's sentence. For an unknown code, `words` translates the device's sentence. */
  sentence(fault: Fault): string {
    const own = this.#catalogue[fault.code];
    if (own === undefined) return this.#words.translate(fault.detail);
    return own.replace(/\{(>?)(\w+)\}/g, (whole, nested: string, name: string) => {
      const value = name === "field" ? fieldOf(fault.pointer) : fault.values[name];
      if (value === undefined) return whole;
      const text = Array.isArray(value) ? value.join(", ") : String(value);
      return nested ? this.#words.translate(text) : text;
    });
  }
}

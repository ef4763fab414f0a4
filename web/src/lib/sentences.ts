/** Translation of the device's sentences by their codes. Pure. */

/** A sentence of the device, as docs/console-api.md describes it. */
export interface Coded {
  code: string;
  values: Values;
  /** The sentence in English. */
  text: string;
}

type Value = string | number | Coded | readonly (string | Coded)[];
export type Values = Readonly<Record<string, Value>>;
type Catalogue = Readonly<Record<string, string>>;

const PLACE = /\{(>?)(\w+)(?::([^}]*))?\}/g;
/** What sentences about a field's form begin with. */
const TAKES = "{field} 应为：";

/** Return a text as a sentence without a code of its own. */
export function asOther(text: string): Coded {
  return { code: "other", values: {}, text };
}

export class Sentences {
  #catalogue: Catalogue;
  #words: Catalogue;

  /** `catalogue` has a sentence for each code, with its values in braces; `words` are values. */
  constructor(catalogue: Catalogue, words: Catalogue) {
    this.#catalogue = catalogue;
    this.#words = words;
  }

  /** Translate a sentence. One with an unknown code, such as another program's, stays as it is. */
  translated({ code, values, text }: Coded): string {
    const own = this.#catalogue[code];
    if (own === undefined) return code === "other" ? this.#shown(values["text"] ?? text) : text;
    // Without a field it is part of another sentence: the form that a field has to have.
    const pattern = "field" in values ? own : own.replace(TAKES, "");
    return pattern.replace(PLACE, (whole, isWord: string, name: string, joint?: string) => {
      const value = values[name];
      if (value === undefined) return whole;
      const shown = this.#shown(value, joint);
      return isWord ? (this.#words[shown] ?? shown) : shown;
    });
  }

  #shown(value: Value, joint = ", "): string {
    if (typeof value === "string" || typeof value === "number") return String(value);
    if ("code" in value) return this.translated(value);
    return value.map((one) => this.#shown(one)).join(joint);
  }
}

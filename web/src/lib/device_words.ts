/** Translation of the device's own sentences by a catalogue. Pure. */

interface Phrase {
  pattern: RegExp;
  /** Names of placeholders whose text is translated, too. */
  nested: ReadonlySet<string>;
  other: string;
}

/** Characters. A longer text is no sentence, and is not translated. */
const LONGEST = 1000;

export class DeviceWords {
  #phrases: readonly Phrase[];

  /** `catalogue` maps the device's sentences, with placeholders, to their translations. */
  constructor(catalogue: Readonly<Record<string, string>>) {
    this.#phrases = Object.entries(catalogue).map(([own, other]) => ({
      pattern: patternOf(own),
      nested: new Set([...own.matchAll(/\{>(\w+)\}/g)].map((found) => found[1] ?? "")),
      other,
    }));
  }

  /** Translate a text; sentences that the catalogue does not contain stay unchanged. */
  translate(text: string): string {
    if (text.length > LONGEST) return text;
    for (const { pattern, nested, other } of this.#phrases) {
      const found = pattern.exec(text);
      if (!found) continue;
      return other.replace(/\{(\w+)\}/g, (_, name: string) => {
        const words = found.groups?.[name] ?? "";
        return nested.has(name) ? this.translate(words) : words;
      });
    }
    // The device joins several sentences by semicolons.
    const parts = text.split("; ");
    return parts.length > 1 ? parts.map((part) => this.translate(part)).join("；") : text;
  }
}

function patternOf(own: string): RegExp {
  const source = own
    .replace(/[.*+?^$|()[\]\\]/g, "\\$&")
    .replaceAll("\\(s\\)", "s?")
    .replace(/\{(>?)(\w+)\}/g, (_, nested: string, name: string) => {
      // An untranslated placeholder does not extend into the next sentence.
      const held = name === "n" ? "\\d+" : nested ? ".+?" : "(?:(?!; ).)+?";
      return `(?<${name}>${held})`;
    });
  return new RegExp(`^${source}$`);
}

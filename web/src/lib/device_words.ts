/** The device's own sentences in another language, as far as a catalogue has them. Pure. */

interface Phrase {
  pattern: RegExp;
  /** Which places hold words of the device's too. */
  nested: ReadonlySet<string>;
  other: string;
}

/** What is longer than this, in characters, is no sentence. */
const LONGEST = 1000;

export class DeviceWords {
  #phrases: readonly Phrase[];

  /** `catalogue`: the other language's sentences by the device's, with places for what differs. */
  constructor(catalogue: Readonly<Record<string, string>>) {
    this.#phrases = Object.entries(catalogue).map(([own, other]) => ({
      pattern: patternOf(own),
      nested: new Set([...own.matchAll(/\{>(\w+)\}/g)].map((found) => found[1] ?? "")),
      other,
    }));
  }

  /** The text in the other language; what is not known stays as it is. */
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
    // Several sentences that were put together.
    const parts = text.split("; ");
    return parts.length > 1 ? parts.map((part) => this.translate(part)).join("；") : text;
  }
}

function patternOf(own: string): RegExp {
  const source = own
    .replace(/[.*+?^$|()[\]\\]/g, "\\$&")
    .replaceAll("\\(s\\)", "s?")
    .replace(/\{(>?)(\w+)\}/g, (_, nested: string, name: string) => {
      // What is shown as it comes does not run into the next sentence.
      const held = name === "n" ? "\\d+" : nested ? ".+?" : "(?:(?!; ).)+?";
      return `(?<${name}>${held})`;
    });
  return new RegExp(`^${source}$`);
}

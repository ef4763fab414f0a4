/** Files to and from the operator's own machine. */

/** Hand `content` to the browser as a file to keep. `type` is that of a text. */
export function download(name: string, content: string | Blob, type = "text/plain"): void {
  const isText = typeof content === "string";
  const blob = isText ? new Blob([content], { type: `${type};charset=utf-8` }) : content;
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

/** A file's text: UTF-16 by its mark, UTF-8, or what Chinese spreadsheets write, GB 18030. */
export function decoded(bytes: Uint8Array): string {
  const mark = (bytes[0] ?? 0) * 256 + (bytes[1] ?? 0);
  if (mark === 0xfffe) return new TextDecoder("utf-16le").decode(bytes);
  if (mark === 0xfeff) return new TextDecoder("utf-16be").decode(bytes);
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return new TextDecoder("gb18030").decode(bytes);
  }
}

/**
 * Where a spreadsheet sees the beginning of a formula (OWASP, "CSV injection"); a semicolon parts
 * fields where people write a comma in numbers.
 */
const FORMULA = /(^(?='*[=+\-@\t\r\uff0b\uff0d\uff1d\uff20])|;(?=['"]*[=+\-@\t\r\uff0b\uff0d\uff1d\uff20]))/g;

/**
 * A row of fields, in quotes where an import would part, trim, or pass over what they hold. An
 * apostrophe keeps a spreadsheet from running a formula; the import takes it away again.
 */
export function csvRow(fields: readonly (string | number)[]): string {
  return fields
    .map((field) => {
      const text = String(field).replace(FORMULA, "$1'");
      return /[",\t\r\n;|]|^[\s#]|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    })
    .join(",");
}

/** Put text on the clipboard; false where the browser will not. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

/** Over plain HTTP there is no `navigator.clipboard`. */
function copyBySelection(text: string): boolean {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "unseen";
  (document.querySelector("dialog[open]") ?? document.body).append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied;
}

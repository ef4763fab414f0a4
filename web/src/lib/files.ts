/** Files and the clipboard of the operator's own machine. */

/** Offer `content` to the browser as a download. `type` is the media type of a text. */
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

/** Decode a file: UTF-16 by its byte order mark, UTF-8, or Chinese spreadsheets' GB 18030. */
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
 * Positions at which a spreadsheet sees the start of a formula (OWASP, "CSV injection").
 * A semicolon separates fields in locales with a decimal comma.
 */
const FORMULA = /(^(?='*[=+\-@\t\r\uff0b\uff0d\uff1d\uff20])|;(?=['"]*[=+\-@\t\r\uff0b\uff0d\uff1d\uff20]))/g;

/**
 * Format fields as a CSV row. A field is quoted if an import would split, trim or skip its text. An
 * apostrophe keeps a spreadsheet from running a formula; the import removes it again.
 */
export function csvRow(fields: readonly (string | number)[]): string {
  return fields
    .map((field) => {
      const text = String(field).replace(FORMULA, "$1'");
      return /[",\t\r\n;|]|^[\s#]|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
    })
    .join(",");
}

/** Put text on the clipboard; false if the browser refuses. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

/** Copy without `navigator.clipboard`, which is missing over plain HTTP. */
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

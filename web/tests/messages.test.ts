import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { en } from "../src/messages/en.ts";
import { zh } from "../src/messages/zh.ts";

const CATALOGUES: Record<string, Record<string, string>> = { en, zh };
const SOURCES = join(import.meta.dirname, "../src");

function placeholders(text: string): string[] {
  return [...new Set([...text.matchAll(/\{(\w+)\}/g)].map((found) => found[1] ?? ""))].sort();
}

/** Keys that the page asks for; `page.*` for one that is put together. */
function wanted(): Set<string> {
  const found = new Set<string>();
  for (const file of readdirSync(SOURCES, { recursive: true, encoding: "utf-8" })) {
    if (!/\.(svelte|ts)$/.test(file) || file.startsWith("messages")) continue;
    const text = readFileSync(join(SOURCES, file), "utf-8");
    for (const [, key] of text.matchAll(/\bt\(\s*["'`]([^"'`]+)["'`]/g)) {
      found.add((key ?? "").replace(/\$\{.*\}/, "*"));
    }
    for (const [, key] of text.matchAll(/\[[\d_]+, "(unit\.\w+)"\]/g)) found.add(key ?? "");
  }
  return found;
}

test("both catalogues have the same messages, none of them empty", () => {
  assert.deepEqual(Object.keys(zh).sort(), Object.keys(en).sort());
  for (const [language, messages] of Object.entries(CATALOGUES)) {
    for (const [key, text] of Object.entries(messages)) {
      assert.notEqual(text.trim(), "", `${language} ${key}`);
    }
  }
});

test("a message takes the same values in both languages", () => {
  for (const key of Object.keys(en) as (keyof typeof en)[]) {
    assert.deepEqual(placeholders(zh[key]), placeholders(en[key]), key);
  }
});

test("each form of a message takes the same values", () => {
  for (const messages of Object.values(CATALOGUES)) {
    for (const [key, text] of Object.entries(messages)) {
      const forms = text.split(" | ").map(placeholders);
      for (const form of forms) assert.deepEqual(form, forms[0], key);
    }
  }
});

test("what English counts in the plural has a form for one", () => {
  for (const [key, text] of Object.entries(en)) {
    if (/^\{n\} \w+s\b/.test(text)) assert.ok(text.includes(" | "), key);
  }
});

test("the page asks for no message that is not there, and for every one that is", () => {
  const asked = wanted();
  const whole = [...asked].filter((key) => !key.includes("*"));
  const parts = [...asked].filter((key) => key.includes("*")).map((key) => key.replace("*", ""));
  for (const key of whole) assert.ok(key in en, `${key} is asked for`);
  const unused = Object.keys(en).filter(
    (key) => !asked.has(key) && !parts.some((part) => key.startsWith(part)),
  );
  assert.deepEqual(unused, []);
});

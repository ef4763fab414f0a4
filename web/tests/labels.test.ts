import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { test } from "node:test";
import { LABELS } from "../src/lib/labels.ts";
import { en } from "../src/messages/en.ts";

const SOURCES = new URL("../src/", import.meta.url);
/** Fields whose box has no label but a question, and which the device refuses for no value of it. */
const BOXES = new Set(["is_bound", "is_enabled", "sniff_domains"]);

test("each field of a form has a label, by which its errors name it", () => {
  const files = readdirSync(SOURCES, { recursive: true, encoding: "utf-8" });
  const fields = new Set<string>();
  for (const file of files.filter((name) => name.endsWith(".svelte"))) {
    const text = readFileSync(new URL(file, SOURCES), "utf-8");
    for (const [, list = ""] of text.matchAll(/new (?:Form|Draft<\w+>)\([^[)]*\[([^\]]*)\]/g))
      for (const [, field = ""] of list.matchAll(/"(\w+)"/g)) fields.add(field);
  }
  assert.ok(fields.size > 30);
  assert.deepEqual(
    [...fields].filter((field) => !(field in LABELS) && !BOXES.has(field)),
    [],
  );
  assert.deepEqual(Object.values(LABELS).filter((key) => !(key in en)), []);
});

import assert from "node:assert/strict";
import { globSync, readFileSync } from "node:fs";
import { test } from "node:test";

/** Lines, markup and style included: a longer component does several things. */
const LONGEST = 250;

test("no component is longer than one can read at once", () => {
  const files = globSync("src/**/*.svelte", { cwd: new URL("..", import.meta.url) });
  assert.ok(files.length > 50);
  const lengths = files.map((file) => {
    const text = readFileSync(new URL(`../${file}`, import.meta.url), "utf8");
    return `${text.split("\n").length - 1} ${file}`;
  });
  assert.deepEqual(
    lengths.filter((one) => parseInt(one) > LONGEST),
    [],
  );
});

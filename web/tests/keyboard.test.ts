import assert from "node:assert/strict";
import { test } from "node:test";
import { actOf, type KeyAct } from "../src/table/keyboard.ts";

const AT = { active: 5, rows: 100, page: 10 };

function press(key: string, held: object = {}, at = AT): KeyAct | null {
  return actOf({ key, shiftKey: false, ctrlKey: false, metaKey: false, ...held }, at);
}

test("keys move by a row, by a page and to the ends", () => {
  const ends = { ArrowDown: 6, ArrowUp: 4, PageDown: 15, PageUp: -5, Home: 0, End: 99 };
  for (const [key, to] of Object.entries(ends)) {
    assert.deepEqual(press(key), { act: "move", to, extendsSelection: false }, key);
    assert.deepEqual(press(key, { shiftKey: true }), { act: "move", to, extendsSelection: true });
  }
});

test("the space bar toggles the active row, and with Shift a range", () => {
  assert.deepEqual(press(" "), { act: "toggle", hasRange: false });
  assert.deepEqual(press(" ", { shiftKey: true }), { act: "toggle", hasRange: true });
});

test("without an active row there is nothing to toggle or edit", () => {
  const nowhere = { ...AT, active: -1 };
  assert.equal(press(" ", {}, nowhere), null);
  assert.equal(press("Enter", {}, nowhere), null);
  assert.deepEqual(press("ArrowDown", {}, nowhere), { act: "move", to: 0, extendsSelection: false });
});

test("A selects all only with Control or Command", () => {
  assert.deepEqual(press("a", { ctrlKey: true }), { act: "toggleAll" });
  assert.deepEqual(press("a", { metaKey: true }), { act: "toggleAll" });
  assert.equal(press("a"), null);
});

test("other keys are the browser's", () => {
  assert.deepEqual(["Enter", "Escape", "Delete"].map((key) => press(key)?.act), [
    "edit",
    "clear",
    "delete",
  ]);
  for (const key of ["Tab", "b", "F5", "toString"]) assert.equal(press(key), null, key);
});

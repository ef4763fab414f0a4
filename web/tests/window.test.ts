import assert from "node:assert/strict";
import { test } from "node:test";
import {
  filledSlots,
  indexInSlot,
  rowWindow,
  scrolledToEditor,
  scrolledToRow,
} from "../src/table/window.ts";

const ROW = 40;
const VIEW = 400;
const ROWS = Array.from({ length: 1000 }, (_, index) => `row ${index}`);

test("the window covers the view wherever it is scrolled to", () => {
  for (let top = 0; top <= ROWS.length * ROW - VIEW; top += 7) {
    const { first, slots } = rowWindow(top, VIEW, ROW);
    assert.ok(first >= 0 && first * ROW <= top, `from ${top}`);
    assert.ok((first + slots) * ROW >= top + VIEW, `from ${top}`);
  }
});

test("the number of slots does not depend on the scroll offset", () => {
  const { slots } = rowWindow(0, VIEW, ROW);
  for (const top of [1, 39, 40, 12345]) assert.equal(rowWindow(top, VIEW, ROW).slots, slots);
});

test("each row of the window has one slot, and keeps it while others pass", () => {
  const held = new Map<number, number>();
  for (let top = 0; top < 4000; top += 130) {
    const shown = rowWindow(top, VIEW, ROW);
    const indices = Array.from({ length: shown.slots }, (_, slot) => indexInSlot(slot, shown));
    const expected = Array.from({ length: shown.slots }, (_, at) => shown.first + at);
    assert.deepEqual([...indices].sort((a, b) => a - b), expected);
    indices.forEach((index, slot) => {
      assert.equal(held.get(index) ?? slot, slot);
      held.set(index, slot);
    });
  }
});

test("a slot holds the row of its index", () => {
  let filled: string[] = [];
  for (const top of [0, 100, 4000, 3960, 0]) {
    const shown = rowWindow(top, VIEW, ROW);
    filled = filledSlots(filled, ROWS, shown);
    assert.equal(filled.length, shown.slots);
    filled.forEach((row, slot) => assert.equal(row, ROWS[indexInSlot(slot, shown)]));
  }
});

test("spare slots keep their rows, and slots that had none stay holes", () => {
  const shown = { first: 0, slots: 4 };
  const three = filledSlots([], ["a", "b", "c"], shown);
  assert.deepEqual(Object.keys(three), ["0", "1", "2"]);
  assert.deepEqual(filledSlots(three, ["d"], shown), ["d", "b", "c"]);
  assert.deepEqual(filledSlots(three, ["d"], { first: 0, slots: 2 }), ["d", "b"]);
});

test("a row is scrolled into view by the shortest way", () => {
  assert.equal(scrolledToRow(5, ROW, 0, VIEW), 0);
  assert.equal(scrolledToRow(9, ROW, 0, VIEW), 0);
  assert.equal(scrolledToRow(10, ROW, 0, VIEW), ROW);
  assert.equal(scrolledToRow(5, ROW, 1000, VIEW), 5 * ROW);
  assert.equal(scrolledToRow(0, ROW, 1, VIEW), 0);
});

test("an editor is scrolled only if it is out of view or at its lower end", () => {
  assert.equal(scrolledToEditor(100, 0, VIEW), 0);
  assert.equal(scrolledToEditor(200, 0, VIEW), 0);
  assert.equal(scrolledToEditor(201, 0, VIEW), 121);
  assert.equal(scrolledToEditor(900, 1000, VIEW), 820);
  assert.equal(scrolledToEditor(0, 1000, VIEW), 0);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  NO_MARKS,
  extendTo,
  indexOf,
  isAllSelected,
  moveTo,
  toggle,
  toggleAll,
} from "../src/table/selection.ts";

const KEYS = [30, 10, 50, 20, 40];
const keysOf = (selected: Set<number>): number[] => KEYS.filter((key) => selected.has(key));

test("a row is selected and deselected, and is then the active one", () => {
  const selected = new Set<number>();
  const marks = toggle(KEYS, selected, NO_MARKS, 1, false);
  assert.deepEqual([keysOf(selected), marks], [[10], { active: 10, anchor: 10 }]);
  toggle(KEYS, selected, marks, 1, false);
  assert.deepEqual(keysOf(selected), []);
});

test("a range goes from the last toggled row to this one, in both directions", () => {
  for (const [from, to] of [
    [1, 3],
    [3, 1],
  ] as const) {
    const selected = new Set<number>();
    const marks = toggle(KEYS, selected, NO_MARKS, from, false);
    toggle(KEYS, selected, marks, to, true);
    assert.deepEqual(keysOf(selected), [10, 50, 20]);
  }
});

test("a range takes the state that its last row gets", () => {
  const selected = new Set(KEYS);
  const marks = toggle(KEYS, selected, NO_MARKS, 1, false);
  toggle(KEYS, selected, marks, 3, true);
  assert.deepEqual(keysOf(selected), [30, 40]);
});

test("a range whose anchor is not shown is one row", () => {
  const selected = new Set<number>();
  toggle(KEYS, selected, { active: null, anchor: 99 }, 2, true);
  toggle(KEYS, selected, NO_MARKS, 4, true);
  assert.deepEqual(keysOf(selected), [50, 40]);
});

test("marks follow their rows into another order", () => {
  const selected = new Set<number>();
  const marks = toggle(KEYS, selected, NO_MARKS, 0, false);
  const reversed = KEYS.toReversed();
  assert.equal(indexOf(reversed, marks.active), 4);
  toggle(reversed, selected, marks, 3, true);
  assert.deepEqual(keysOf(selected), [30, 10]);
});

test("a row that does not exist is not toggled", () => {
  const selected = new Set<number>();
  assert.equal(toggle(KEYS, selected, NO_MARKS, 5, false), NO_MARKS);
  assert.equal(selected.size, 0);
});

test("all rows shown are selected, then none of them; hidden ones stay as they are", () => {
  const selected = new Set([10, 99]);
  assert.ok(!isAllSelected(KEYS, selected));
  toggleAll(KEYS, selected);
  assert.ok(isAllSelected(KEYS, selected));
  assert.equal(selected.size, KEYS.length + 1);
  toggleAll(KEYS, selected);
  assert.deepEqual([...selected], [99]);
});

test("a table without rows is not all selected", () => {
  const selected = new Set<number>();
  assert.ok(!isAllSelected([], selected));
  toggleAll([], selected);
  assert.equal(selected.size, 0);
});

test("a move ends at the first and the last row, and forgets the anchor", () => {
  const marks = { active: 10, anchor: 10 };
  assert.deepEqual(moveTo(KEYS, marks, 2), { active: 50, anchor: null });
  assert.deepEqual(moveTo(KEYS, marks, -9), { active: 30, anchor: null });
  assert.deepEqual(moveTo(KEYS, marks, 99), { active: 40, anchor: null });
  assert.deepEqual(moveTo([], marks, 0), { active: 10, anchor: null });
});

test("a selection grows and shrinks from its anchor, and turns at it", () => {
  const selected = new Set<number>();
  let marks = moveTo(KEYS, NO_MARKS, 2);
  const shown = [1, 0, 1, 2, 3, 4].map((to) => {
    marks = extendTo(KEYS, selected, marks, to);
    return keysOf(selected);
  });
  assert.deepEqual(shown, [[10, 50], [30, 10, 50], [10, 50], [50], [50, 20], [50, 20, 40]]);
  assert.deepEqual(marks, { active: 40, anchor: 50 });
});

test("a selection that begins without an active row begins at the first", () => {
  const selected = new Set<number>();
  extendTo(KEYS, selected, NO_MARKS, 2);
  assert.deepEqual(keysOf(selected), [30, 10, 50]);
  assert.deepEqual(extendTo([], new Set(), NO_MARKS, 0), NO_MARKS);
});

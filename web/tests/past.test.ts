import assert from "node:assert/strict";
import { test } from "node:test";
import { sparkPath, stretchesOf, uptimeOf } from "../src/lib/past.ts";

test("a line goes from the lowest to the highest value, with gaps", () => {
  assert.equal(sparkPath([10, 20, null, 15, null, null, 10, 12.5], 10), "M0 10L1 0M3 5h0.5M6 10L7 7.5");
});

test("equal values are in the middle, and no value is no line", () => {
  assert.equal(sparkPath([7, 7], 16), "M0 8L1 8");
  assert.equal(sparkPath([null, null], 16), "");
});

const states = [
  { from: "2026-11-20T00:00:00Z", to: "2026-11-20T12:00:00Z", state: "up" },
  { from: "2026-11-20T12:00:00Z", to: "2026-11-20T18:00:00Z", state: "down" },
] as const;

test("states are as wide as they were long", () => {
  assert.deepEqual(stretchesOf([...states], "2026-11-20T00:00:00Z", "2026-11-21T00:00:00Z"), [
    { start: 0, width: 50, state: "up" },
    { start: 50, width: 25, state: "down" },
  ]);
});

test("the share is that of the time in which the line was wanted", () => {
  const line = { type: "l2tp", name: "a", states: [...states] };
  assert.deepEqual(uptimeOf({ ...line, up_s: 300, down_s: 100 }), { outages: 1, share: 0.75 });
  assert.equal(uptimeOf({ ...line, up_s: 0, down_s: 0 }).share, null);
});

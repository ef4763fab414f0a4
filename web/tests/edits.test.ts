import assert from "node:assert/strict";
import { test } from "node:test";
import { numeric, rebased } from "../src/lib/edits.ts";

const BEFORE = { ip: "10.0.0.1", target: "DIRECT", is_enabled: true, servers: ["1.1.1.1"] };

test("what was typed is sent, and what others changed is not undone", () => {
  const draft = { ...BEFORE, servers: [...BEFORE.servers], ip: "10.0.0.2" };
  const now = { ...BEFORE, target: "REJECT", is_enabled: false, servers: ["9.9.9.9"] };
  assert.deepEqual(rebased(BEFORE, draft, now), { ...now, ip: "10.0.0.2" });
});

test("where both changed the same, what was typed counts", () => {
  const now = { ...BEFORE, target: "REJECT" };
  assert.equal(rebased(BEFORE, { ...BEFORE, target: "tokyo" }, now).target, "tokyo");
});

test("nothing is sent but the form's own fields", () => {
  const now = { ...BEFORE, ip: "10.0.0.3" };
  assert.deepEqual(rebased<{ ip: string }>(BEFORE, { ip: BEFORE.ip }, now), { ip: "10.0.0.3" });
});

test("a number is one in digits, and all else is as it was typed", () => {
  assert.deepEqual([" 1701 ", "17o1", "1e3", "0x10", "", "-1"].map(numeric), [
    1701,
    "17o1",
    "1e3",
    "0x10",
    "",
    "-1",
  ]);
});

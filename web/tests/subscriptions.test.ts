import assert from "node:assert/strict";
import { test } from "node:test";
import type { ListedFate } from "../src/lib/schemas.ts";
import { byFate, fieldsOf, pairsOf, repeatedKey, usedPercent } from "../src/lib/subscriptions.ts";

test("rows keep their order, and empty ones are left out", () => {
  const pairs = pairsOf({ "^": "s-", " +": " " });
  assert.deepEqual(pairs, [
    { key: "^", value: "s-" },
    { key: " +", value: " " },
  ]);
  const typed = [...pairs, { key: "", value: "" }, { key: "x", value: "" }];
  assert.equal(JSON.stringify(fieldsOf(typed)), '{"^":"s-"," +":" ","x":""}');
  // The device refuses it, and says why.
  assert.deepEqual(fieldsOf([{ key: "", value: "x" }]), { "": "x" });
});

test("a key that stands twice is found", () => {
  const row = (key: string) => ({ key, value: "" });
  assert.equal(repeatedKey([row("a"), row(""), row("b"), row("")]), "");
  assert.equal(repeatedKey([row("a"), row("b"), row("a")]), "a");
});

test("a quota is used up at 100 percent, and unknown without both figures", () => {
  const quota = (used: number | null, total: number | null) =>
    usedPercent({ used, total, expires_at: null });
  assert.equal(quota(999, 1000), 99);
  assert.equal(quota(3000, 1000), 100);
  assert.equal(quota(0, 1000), 0);
  assert.equal(quota(5, 0), null);
  assert.equal(quota(5, null), null);
  assert.equal(quota(null, 5), null);
});

test("nodes that clients lose come first, those that stay as they are last", () => {
  const node = (name: string, fate: ListedFate["fate"]): ListedFate => ({
    name,
    fate,
    changed: [],
    reason: "",
    reason_coded: null,
  });
  const nodes = [node("a", "same"), node("b", "added"), node("c", "kept"), node("d", "added")];
  assert.deepEqual(
    byFate(nodes).map(({ fate, nodes: those }) => [fate, those.map(({ name }) => name)]),
    [
      ["kept", ["c"]],
      ["added", ["b", "d"]],
      ["same", ["a"]],
    ],
  );
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { lossOf } from "../src/lib/node_loss.ts";
import type { Node, Rule } from "../src/lib/types.ts";

function node(name: string, group = "", relay = ""): Node {
  const config_json = JSON.stringify(relay ? { "dialer-proxy": relay } : {});
  return { id: 0, name, protocol: "socks5", config_json, group, created_at: "" };
}

const rule = (target_node: string, is_enabled = true): Rule =>
  ({ ip: "", target_node, is_enabled }) as Rule;

const NOBODY = { listed: "DIRECT", unmanaged: "REJECT" };
const NOTHING = { rules: 0, relayed: 0, isListedCut: false, isUnmanagedCut: false };

test("a rule is cut with its node, and with the last node of its group", () => {
  const [a, b] = [node("a", "g"), node("b", "g")];
  const rules = [rule("a"), rule("a", false), rule("Group_g"), rule("Group_gone"), rule("DIRECT")];
  assert.deepEqual(lossOf([a], [a, b], rules, NOBODY), { ...NOTHING, rules: 1 });
  assert.deepEqual(lossOf([b], [a, b], rules, NOBODY), NOTHING);
  assert.deepEqual(lossOf([a, b], [a, b], rules, NOBODY), { ...NOTHING, rules: 2 });
});

test("whoever is dialled through a deleted node is cut too, however far", () => {
  const nodes = [node("far", "g", "near"), node("near", "", "relay"), node("relay")];
  const rules = [rule("Group_g"), rule("near")];
  const loss = { ...NOTHING, rules: 2, relayed: 2 };
  assert.deepEqual(lossOf([nodes[2]!], nodes, rules, NOBODY), loss);
});

test("the whitelist and clients without a rule are looked at as rules are", () => {
  const [a, b] = [node("a", "g"), node("b")];
  const elsewhere = { listed: "b", unmanaged: "Group_g" };
  assert.deepEqual(lossOf([a], [a, b], [], elsewhere), { ...NOTHING, isUnmanagedCut: true });
  assert.deepEqual(lossOf([b], [a, b], [], elsewhere), { ...NOTHING, isListedCut: true });
});

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Device, Line, Node, Rule, Subscription } from "../src/lib/types.ts";
import { addressIn, entriesOf, search } from "../src/shell/finds.ts";

const rule = (ip: string, comment = "", target_node = "hk-01"): Rule =>
  ({ ip, comment, target_node, mac: "" }) as Rule;
const node = (name: string, group = ""): Node => ({ name, group, protocol: "ss" }) as Node;
const line = (name: string): Line => ({ name, server: "192.0.2.9", comment: "" }) as Line;
const device = (mac: string, ip: string, name: string, rule_id: number | null): Device =>
  ({ mac, name, hostname: "", vendor: "", comment: "", addresses: [{ ip }], rule_id }) as Device;

const entries = entriesOf({
  rules: [rule("10.0.0.11", "desk 1"), rule("10.0.0.1", "", "Group_hk"), rule("10.0.0.12", "hk")],
  nodes: [node("hk-01", "hk"), node("shk-02", "hk"), node("us 1")],
  groups: ["hk", "ways"],
  lines: [line("l2tp_a")],
  subscriptions: [{ name: "seller", host: "lists.example.com" } as Subscription],
  devices: [
    device("aa:00:00:00:00:01", "10.0.0.1", "Anna's tablet", 2),
    device("aa:00:00:00:00:02", "10.0.0.77", "printer", null),
  ],
});
const titles = (typed: string, most = 9): string[] =>
  search(entries, typed, most).shown.map(({ kind, title }) => `${kind} ${title}`);

test("the best match comes first: the whole title, its beginning, a word of it, anything else", () => {
  assert.deepEqual(titles("hk"), [
    "group hk",
    "node hk-01",
    "node shk-02",
    "client 10.0.0.11",
    "client 10.0.0.1",
    "client 10.0.0.12",
  ]);
  assert.deepEqual(titles("10.0.0.1"), ["client 10.0.0.1", "client 10.0.0.11", "client 10.0.0.12"]);
});

test("clients are found by address, comment, and the name and MAC of their device", () => {
  assert.deepEqual(titles("desk 1"), ["client 10.0.0.11"]);
  assert.deepEqual(titles("anna TABLET"), ["client 10.0.0.1"]);
  assert.deepEqual(titles("00:01"), ["client 10.0.0.1"]);
  // A device without a rule is found as such, one with a rule as the rule's client.
  assert.deepEqual(titles("printer"), ["device printer"]);
});

test("what is found leads to its row", () => {
  assert.deepEqual(search(entries, "us 1", 1).shown[0]?.query, { q: 'name:"us 1"' });
  assert.deepEqual(search(entries, "l2tp", 1).shown[0], {
    kind: "line",
    title: "l2tp_a",
    detail: "192.0.2.9",
    page: "lines",
    query: { q: "name:l2tp_a" },
  });
});

test("groups are found by their names, also those that no node bears", () => {
  assert.deepEqual(search(entries, "ways", 1).shown[0]?.query, { q: "ways" });
  assert.equal(search(entries, "hk", 1).shown[0]?.detail, "2");
});

test("more than the most are counted", () => {
  assert.deepEqual(search(entries, "", 2).total, entries.length);
  assert.equal(titles("", 2).length, 2);
  assert.deepEqual(search(entries, "nothing like it", 2), { shown: [], total: 0 });
});

test("an address is one of IPv4, in full", () => {
  assert.equal(addressIn(" 10.0.0.7 "), "10.0.0.7");
  for (const other of ["10.0.0", "10.0.0.256", "10.0.0.7/24", "a.b.c.d", ""])
    assert.equal(addressIn(other), "");
});

test("subscriptions are found by their names and hosts", () => {
  assert.deepEqual(titles("seller"), ["subscription seller"]);
  assert.deepEqual(search(entries, "lists.example", 1).shown[0]?.query, { q: "seller" });
});

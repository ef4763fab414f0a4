import assert from "node:assert/strict";
import { test } from "node:test";
import { merged } from "../src/lib/difference.ts";
import { addressOrder, limitOrder, parseTarget } from "../src/lib/target.ts";
import { Filter, nextOrder, ordered, termText } from "../src/table/order.ts";
import { chosenOf } from "../src/table/selection.ts";

interface Row {
  id: number;
  ip: string;
  note: string;
}
const ROWS: Row[] = [
  { id: 1, ip: "10.0.0.10", note: "Beta" },
  { id: 2, ip: "10.0.0.9", note: "alpha 10" },
  { id: 3, ip: "9.255.255.255", note: "alpha 9" },
];
const COLUMNS = [
  { id: "ip", label: "", width: "", sort: (row: Row) => addressOrder(row.ip) },
  { id: "note", label: "", width: "", sort: (row: Row) => row.note },
  { id: "plain", label: "", width: "" },
];
const ids = (rows: readonly Row[]): number[] => rows.map((row) => row.id);

test("addresses are ordered as numbers, and a wider CIDR comes first", () => {
  assert.deepEqual(ids(ordered(ROWS, COLUMNS, { by: "ip", isDescending: false })), [3, 2, 1]);
  assert.ok(addressOrder("10.0.0.0/8") < addressOrder("10.0.0.0/24"));
  assert.ok(addressOrder("10.0.0.0/24") < addressOrder("10.0.0.0"));
  assert.ok(addressOrder("255.255.255.255") < addressOrder("255.255.255.255") + 1);
});

test("texts are ordered as people count, whatever their case", () => {
  assert.deepEqual(ids(ordered(ROWS, COLUMNS, { by: "note", isDescending: false })), [3, 2, 1]);
  assert.deepEqual(ids(ordered(ROWS, COLUMNS, { by: "note", isDescending: true })), [1, 2, 3]);
});

test("without an order, or by a column that has none, rows stay as they come", () => {
  assert.equal(ordered(ROWS, COLUMNS, null), ROWS);
  assert.equal(ordered(ROWS, COLUMNS, { by: "plain", isDescending: true }), ROWS);
});

test("every word of a filter must stand somewhere in the row", () => {
  const filter = new Filter<Row>((row) => `${row.ip} ${row.note}`);
  assert.equal(filter.apply(ROWS, "  "), ROWS);
  assert.deepEqual(ids(filter.apply(ROWS, "ALPHA 10.0")), [2]);
  assert.deepEqual(ids(filter.apply(ROWS, "gamma")), []);
});

test("a phrase stands in a row as whole words", () => {
  const notes = ["desk 3", "Desk 3, left", "desk 30", "a desk 3b", "desk and 3", "3.5 (x)"];
  const rows = notes.map((note, id) => ({ id, ip: "", note }));
  const filter = new Filter<Row>((row) => row.note);
  assert.deepEqual(ids(filter.apply(rows, '"desk 3"')), [0, 1]);
  assert.deepEqual(ids(filter.apply(rows, "desk 3")), [0, 1, 2, 3, 4, 5].slice(0, 5));
  assert.deepEqual(ids(filter.apply(rows, '"3.5 (x)"')), [5]);
  assert.deepEqual(ids(filter.apply(rows, '"desk 3" left')), [1]);
  assert.equal(filter.apply(rows, '"').length, rows.length);
});

test("each field of a row is a term: a part of it, or all of it in quotes", () => {
  const filter = new Filter<Row>((row) => row.note);
  assert.deepEqual(ids(filter.apply(ROWS, "ip:10.0.0")), [1, 2]);
  assert.deepEqual(ids(filter.apply(ROWS, "NOTE:ALPHA")), [2, 3]);
  assert.deepEqual(ids(filter.apply(ROWS, 'note:"alpha 9"')), [3]);
  assert.deepEqual(ids(filter.apply(ROWS, 'note:"alpha"')), []);
  assert.deepEqual(ids(filter.apply(ROWS, "id:1")), [1]);
  assert.deepEqual(filter.apply([], "note:x"), []);
});

test("a term of a filter is exact, and may hold anything in its quotes", () => {
  const notes = ["hk", "hk-2", "HK", 'the "hk" one', "hk: x"];
  const rows = notes.map((note, at) => ({ id: at, ip: `10.0.0.${at}`, note }));
  const filter = new Filter<Row>((row) => `${row.ip} ${row.note}`, {
    note: (row, value) => row.note === value,
  });
  for (const row of rows) {
    assert.deepEqual(filter.apply(rows, termText("note", row.note)), [row]);
  }
  assert.equal(termText("note", "hk"), "note:hk");
  assert.equal(termText("note", 'the "hk" one'), 'note:"the ""hk"" one"');
  assert.deepEqual(ids(filter.apply(rows, "10.0.0.1 note:hk-2")), [1]);
  assert.deepEqual(ids(filter.apply(rows, "10.0.0.2 note:hk-2")), []);
  // As a phone begins it.
  assert.deepEqual(ids(filter.apply(rows, "Note:hk")), [0]);
  // While it is typed; and what is no term is a word.
  assert.equal(filter.apply(rows, 'note:"'), rows);
  assert.deepEqual(ids(filter.apply(rows, "hk: x")), [4]);
  assert.deepEqual(ids(filter.apply(rows, "constructor:x")), []);
});

test("no limit is the largest", () => {
  const columns = [{ id: "limit", label: "", width: "", sort: limitOrder }];
  const limits = ordered([0, 5000, 0, 100], columns, { by: "limit", isDescending: false });
  assert.deepEqual(limits, [100, 5000, 0, 0]);
});

test("a filter reads texts ahead, each once, and until it is told to stop", () => {
  const waiting: IdleRequestCallback[] = [];
  Object.assign(globalThis, {
    requestIdleCallback: (go: IdleRequestCallback) => waiting.push(go),
    cancelIdleCallback: (handle: number) => waiting.splice(handle - 1, 1),
  });
  const rows = Array.from({ length: 120 }, (_, id) => ({ id }));
  const read: number[] = [];
  const filter = new Filter<{ id: number }>((row) => `${read.push(row.id)}`);
  let left = 2;
  const deadline = { didTimeout: false, timeRemaining: () => (left-- > 0 ? 5 : 0) };

  const end = filter.prepare(rows);
  waiting.shift()?.(deadline);
  assert.equal(read.length, 100);
  waiting.shift()?.({ ...deadline, timeRemaining: () => 5 });
  assert.equal(read.length, 120);
  assert.equal(filter.apply(rows, "1").length, 40);
  assert.equal(read.length, 120);
  assert.equal(waiting.length, 0);
  end();

  filter.prepare(rows.map((row) => ({ ...row })))();
  assert.equal(waiting.length, 0);
});

test("what was selected and is gone is not chosen", () => {
  assert.deepEqual(ids(chosenOf(ROWS, new Set([2, 7]))), [2]);
});

test("a target's prefix is exact", () => {
  assert.deepEqual(parseTarget("Group_hk"), { kind: "group", name: "hk" });
  assert.deepEqual(parseTarget("group_hk"), { kind: "node", name: "group_hk" });
  assert.deepEqual(parseTarget("Interface:wan1"), { kind: "interface", name: "wan1" });
  assert.deepEqual(parseTarget("REJECT"), { kind: "reject", name: "REJECT" });
});

test("a difference makes the list what it is on the device", () => {
  const [first, second, third] = ROWS as [Row, Row, Row];
  const edited = { ...second, note: "edited" };
  const fresh = { id: 9, ip: "10.0.0.11", note: "new" };
  const after = merged(ROWS, { changed: [edited, fresh], gone: [1] });
  assert.deepEqual(after, [edited, third, fresh]);
  assert.equal(after[1], third);
  assert.deepEqual(ids(merged([third], { changed: [first], gone: [7] })), [1, 3]);
  assert.equal(merged(ROWS, { changed: [], gone: [] }), ROWS);
});

test("a heading sorts upwards, downwards, then not; another one begins anew", () => {
  const up = nextOrder(null, "ip");
  assert.deepEqual(up, { by: "ip", isDescending: false });
  const down = nextOrder(up, "ip");
  assert.deepEqual(down, { by: "ip", isDescending: true });
  assert.equal(nextOrder(down, "ip"), null);
  assert.deepEqual(nextOrder(down, "note"), { by: "note", isDescending: false });
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { csvRow } from "../src/lib/files.ts";
import { faultsByLine, notesByLine, notesOfNoLine, numberedRows } from "../src/lib/import_rows.ts";
import type { Coded } from "../src/lib/sentences.ts";
import { egressOf, parseConfig, serverOf } from "../src/lib/node_config.ts";

test("rows are counted as the device counts them", () => {
  const text = "\ufeffa,b\r\n\n# note\n  c  \n";
  assert.deepEqual(numberedRows(text), [
    { line: 1, text: "a,b" },
    { line: 4, text: "c" },
  ]);
  assert.deepEqual(numberedRows("a\n\u200b\n\ufeffb\u200d\n"), [
    { line: 1, text: "a" },
    { line: 3, text: "b" },
  ]);
});

test("notes belong to their lines, or to none", () => {
  const note = (text: string): Coded => ({ code: "other", values: { text }, text });
  const ofRow = (line: number, of: Coded): Coded => ({ code: "of-row", values: { line, note: of }, text: "" });
  const [one, two, three] = [note("one"), note("two"), note("three")];
  const all = [ofRow(1, one), three, ofRow(2, two), ofRow(1, two)];
  assert.deepEqual([...notesByLine(all)], [[1, [one, two]], [2, [two]]]);
  assert.deepEqual(notesOfNoLine(all), [three]);
});

test("an exported row can be imported again", () => {
  assert.equal(csvRow(["10.0.0.1", "hk", "camera, door"]), '10.0.0.1,hk,"camera, door"');
  assert.equal(csvRow(["#guest", "wan1", "a#"]), '"#guest",wan1,a#');
  assert.equal(csvRow(["a|b", 'say "x"', " pad", 7]), '"a|b","say ""x"""," pad",7');
});

test("no exported field is a formula to a spreadsheet", () => {
  assert.equal(csvRow(["=1+1", "'=1", "'a", "-", "a="]), "'=1+1,''=1,'a,'-,a=");
  assert.equal(csvRow(["+86", "@x", "\uff1d1", '=1,"2"']), `'+86,'@x,'\uff1d1,"'=1,""2"""`);
  assert.equal(csvRow(["a;=1;'+2;b", ';;-;"=1']), `"a;'=1;''+2;b",";;'-;'""=1"`);
});

test("a node's server and way are read out of its configuration", () => {
  const node = { id: 1, name: "a", protocol: "ss", group: "", created_at: "" };
  const of = (config: unknown) => ({ ...node, config_json: JSON.stringify(config) });
  assert.equal(serverOf(of({ server: "2001:db8::1", port: 443 })), "[2001:db8::1]:443");
  assert.equal(serverOf(of({ server: "a.test", ports: "443,8000-9000" })), "a.test:443,8000-9000");
  assert.equal(egressOf(of({ "interface-name": "wan2" })), "Interface:wan2");
  assert.equal(egressOf(of({ "dialer-proxy": "b" })), "b");
  assert.equal(parseConfig("[1]"), null);
  assert.equal(serverOf({ ...node, config_json: "{" }), ":");
});

test("what is wrong with several rows of one line stands together", () => {
  const fault = (code: string) => ({ pointer: "/ip", code, values: {}, detail: code });
  const rows = [
    { line: 2, errors: [fault("a")] },
    { line: 5, errors: [fault("b"), fault("c")] },
    { line: 2, errors: [fault("d")] },
  ];
  const found = [...faultsByLine(rows)].map(([line, faults]) => [line, faults.map((f) => f.code)]);
  assert.deepEqual(found, [
    [2, ["a", "d"]],
    [5, ["b", "c"]],
  ]);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { csvRow } from "../src/lib/files.ts";
import { faultsByLine, numberedRows, textsByLine, textsOfNoLine } from "../src/lib/import_rows.ts";
import { egressOf, parseConfig, serverOf } from "../src/lib/node_config.ts";

test("rows are counted as the device counts them", () => {
  const text = "\ufeffa,b\r\n\n# note\n  c  \n";
  assert.deepEqual(numberedRows(text), [
    { line: 1, text: "a,b" },
    { line: 4, text: "c" },
  ]);
  assert.deepEqual(
    [...textsByLine(["line 4: port must be a number: 1 to 2", "something else"])],
    [[4, "port must be a number: 1 to 2"]],
  );
  assert.deepEqual(numberedRows("a\n\u200b\n\ufeffb\u200d\n"), [
    { line: 1, text: "a" },
    { line: 3, text: "b" },
  ]);
  assert.deepEqual(
    [...textsByLine(["line 1: one", "line 2: other", "line 1: two"])],
    [
      [1, "one; two"],
      [2, "other"],
    ],
  );
  assert.deepEqual(textsOfNoLine(["line 4: of a line", "1 rule is blocked"]), ["1 rule is blocked"]);
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

import assert from "node:assert/strict";
import { test } from "node:test";
import { changedFields, numeric, overtaken, rebased } from "../src/lib/edits.ts";

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

test("of texts that are JSON objects, each field is one of its own", () => {
  const config = (fields: object): { config_json: string } => ({
    config_json: JSON.stringify(fields),
  });
  const before = { password: "old", port: 443, sni: "a.test", "interface-name": "wan1" };
  const typed = JSON.stringify({ ...before, password: "new", sni: undefined, alpn: ["h2"] }, null, 2);
  const now = { ...before, port: 8443, "interface-name": "wan2", "dns-profile": "domestic" };
  const sent = rebased(config(before), { config_json: typed }, config(now));
  assert.deepEqual(JSON.parse(sent.config_json), {
    password: "new",
    port: 8443,
    "interface-name": "wan2",
    "dns-profile": "domestic",
    alpn: ["h2"],
  });
  // As it was typed, where nobody else has changed it, or it is no object.
  assert.equal(rebased(config(before), { config_json: typed }, config(before)).config_json, typed);
  assert.equal(rebased(config(before), { config_json: "{" }, config(now)).config_json, "{");
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

test("fields that were not typed are not sent", () => {
  const draft = { ...BEFORE, servers: [...BEFORE.servers], ip: "10.0.0.2" };
  assert.deepEqual(changedFields(BEFORE, draft, { ...BEFORE, target: "REJECT" }), { ip: "10.0.0.2" });
  assert.deepEqual(changedFields(BEFORE, { ...BEFORE }, BEFORE), {});
});

test("a field is overtaken where both changed it, and differently", () => {
  const draft = { ...BEFORE, ip: "10.0.0.2", target: "tokyo" };
  const found = (now: object): object => overtaken(BEFORE, BEFORE, draft, { ...BEFORE, ...now });
  assert.deepEqual(found({}), {});
  assert.deepEqual(found({ is_enabled: false }), {});
  assert.deepEqual(found({ target: "REJECT" }), { target: "REJECT" });
  assert.deepEqual(found({ target: "tokyo" }), {});
});

test("a change of another that was shown is not shown again, and a further one is", () => {
  const draft = { ...BEFORE, target: "tokyo" };
  const shown = { ...BEFORE, target: "REJECT" };
  assert.deepEqual(overtaken(shown, BEFORE, draft, shown), {});
  const further = { ...BEFORE, target: "osaka" };
  assert.deepEqual(overtaken(shown, BEFORE, draft, further), { target: "osaka" });
});

test("of texts that are JSON objects, one field is overtaken", () => {
  const config = (fields: object): { config_json: string } => ({
    config_json: JSON.stringify(fields),
  });
  const before = { password: "old", port: 443 };
  const draft = config({ ...before, password: "mine" });
  const theirs = (fields: object): object =>
    overtaken(config(before), config(before), draft, config({ ...before, ...fields }));
  assert.deepEqual(theirs({ port: 8443 }), {});
  assert.deepEqual(theirs({ password: "theirs" }), { "config_json/password": "theirs" });
});

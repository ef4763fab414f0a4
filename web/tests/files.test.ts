import assert from "node:assert/strict";
import { test } from "node:test";
import { decoded } from "../src/lib/files.ts";

const ROW = "10.0.0.1,香港,客厅";

test("a file is read in the encoding that it is in", () => {
  const utf16 = Buffer.from(`\ufeff${ROW}`, "utf16le");
  assert.equal(decoded(Buffer.from(ROW)), ROW);
  assert.equal(decoded(Buffer.from(`\ufeff${ROW}`)), ROW);
  assert.equal(decoded(utf16), ROW);
  assert.equal(decoded(Buffer.from(utf16).swap16()), ROW);
  const gbk = "3130 2e30 2e30 2e31 2ccf e3b8 db2c bfcd ccfc";
  assert.equal(decoded(Buffer.from(gbk.replaceAll(" ", ""), "hex")), ROW);
  assert.equal(decoded(new Uint8Array()), "");
});

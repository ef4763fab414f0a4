import assert from "node:assert/strict";
import { test } from "node:test";
import { trafficColumns } from "../src/lib/traffic.ts";

test("a slot without a record is a gap, and the last one is averaged over its time so far", () => {
  const data = [
    { at: "1970-01-01T00:15:00Z", download_bytes: 900, upload_bytes: 0 },
    { at: "1970-01-01T00:45:00Z", download_bytes: 100, upload_bytes: 50 },
  ];
  const window = { from: "1970-01-01T00:16:40Z", to: "1970-01-01T00:46:40Z" };
  const traffic = { ...window, by: "client", key: "10.0.0.1", step: "15m", data } as const;
  assert.deepEqual(trafficColumns({ ...traffic, data: [...data] }), [
    [900, 1800, 2700],
    [8, null, 8],
    [-0, null, -4],
  ]);
});

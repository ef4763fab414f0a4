import assert from "node:assert/strict";
import { test } from "node:test";
import { BLOCKED, fitted, layout as layoutOf, type Picture } from "../src/flow/layout.ts";
import type { Flow } from "../src/lib/types.ts";

function flow(target: string, clients: number, egresses: string[], problem = ""): Flow {
  const flows = { upload_bps: 0, download_bps: 0, cause: "", since: "" };
  const problem_coded = problem === "" ? null : { code: "other", values: {}, text: problem };
  return { target, kind: "node", clients, egresses, problem, problem_coded, ...flows };
}

/** The picture of a device that has sent all of its flows. */
function layout(flows: Flow[]): Picture {
  const enabled_rules = flows.reduce((sum, one) => sum + one.clients, 0);
  return layoutOf({ flows, counts: { enabled_rules, targets: flows.length } });
}

test("clients are as many on each side of the targets", () => {
  const picture = layout([flow("a", 6, ["wan1", "wan2"]), flow("b", 3, ["wan1"])]);
  const inward = picture.ribbons.filter((ribbon) => ribbon.egress === null);
  const outward = picture.ribbons.filter((ribbon) => ribbon.egress !== null);
  const sum = (ribbons: typeof inward): number =>
    ribbons.reduce((total, ribbon) => total + ribbon.weight, 0);
  assert.equal(sum(inward), 9);
  assert.equal(sum(outward), 9);
  assert.deepEqual(
    picture.egresses.map((egress) => [egress.id, egress.clients]),
    [
      ["wan2", 3],
      ["wan1", 6],
    ],
  );
});

test("blocked clients, and those with no way out, end nowhere, at the bottom", () => {
  const picture = layout([flow("gone", 9, ["wan1"], "no such node"), flow("REJECT", 1, []), flow("b", 1, ["wan1"])]);
  assert.deepEqual(
    picture.egresses.map((egress) => [egress.id, egress.clients]),
    [
      ["wan1", 1],
      [BLOCKED, 10],
    ],
  );
});

test("blocks do not overlap, and all lie inside of the picture", () => {
  const flows = Array.from({ length: 14 }, (_, at) => flow(`t${at}`, 2 ** 14 >> at, [`wan${at % 5}`]));
  const picture = layout(flows);
  assert.equal(picture.targets.length, 10);
  assert.equal(picture.others, 4);
  for (const column of [picture.targets, picture.egresses]) {
    let bottom = -0.001;
    for (const block of column) {
      assert.ok(block.y >= bottom, `${block.id} at ${block.y} after ${bottom}`);
      bottom = block.y + block.height;
    }
    assert.ok(bottom <= picture.height + 0.001);
  }
});

test("what the device has not sent is counted too", () => {
  const flows = Array.from({ length: 200 }, (_, at) => flow(`t${at}`, 1, ["wan1"]));
  const picture = layoutOf({ flows, counts: { enabled_rules: 1000, targets: 1000 } });
  assert.equal(picture.clients.clients, 1000);
  assert.equal(picture.others, 990);
});

test("a target without clients is not drawn, and nothing is a picture too", () => {
  assert.deepEqual(layout([flow("a", 0, ["wan1"])]).targets, []);
  assert.deepEqual(layout([]).ribbons, []);
});

test("where there is traffic, widths show it, and who has none is still drawn, in the same place", () => {
  const idle = [flow("a", 9, ["wan1"]), flow("b", 3, ["wan2"]), flow("c", 2, ["wan2"])];
  const before = layout(idle);
  const after = layout(idle.map((one) => (one.target === "b" ? { ...one, download_bps: 9e6 } : one)));
  assert.equal(before.isByTraffic, false);
  assert.equal(after.isByTraffic, true);
  const ids = (blocks: { id: string }[]): string[] => blocks.map((block) => block.id);
  assert.deepEqual(ids(after.targets), ids(before.targets));
  const widths = (target: string): number[] =>
    after.ribbons.filter((ribbon) => ribbon.target === target).map((ribbon) => ribbon.width);
  assert.equal(widths("a").length, 2);
  assert.ok(Math.min(...widths("b")) > 20 * Math.max(...widths("a")));
  assert.ok(Math.min(...widths("a")) >= 1);
  const height = (id: string): number =>
    after.targets.find((block) => block.id === id)?.height ?? 0;
  assert.ok(height("b") > height("a"));
  assert.equal(after.clients.clients, 14);
});

test("a text is shortened to its room, broad letters sooner than narrow ones", () => {
  assert.equal(fitted("hk-01", 60), "hk-01");
  assert.equal(fitted("hk-0123456789", 60), "hk-0123…");
  assert.equal(fitted("wwwwwwwww", 60), "wwww…");
  assert.equal(fitted("香港节点一号", 60), "香港节…");
  assert.equal(fitted("香港", 5), "香…");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { BLOCKED, layout } from "../src/flow/layout.ts";
import type { Flow } from "../src/lib/types.ts";

function flow(target: string, clients: number, egresses: string[], problem = ""): Flow {
  return { target, kind: "node", clients, egresses, problem };
}

test("clients are as many on each side of the targets", () => {
  const picture = layout([flow("a", 6, ["wan1", "wan2"]), flow("b", 3, ["wan1"])]);
  const inward = picture.ribbons.filter((ribbon) => ribbon.egress === null);
  const outward = picture.ribbons.filter((ribbon) => ribbon.egress !== null);
  const sum = (ribbons: typeof inward): number =>
    ribbons.reduce((total, ribbon) => total + ribbon.clients, 0);
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

test("a target without clients is not drawn, and nothing is a picture too", () => {
  assert.deepEqual(layout([flow("a", 0, ["wan1"])]).targets, []);
  assert.deepEqual(layout([]).ribbons, []);
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { Rates, SAMPLES_MAX } from "../src/lib/rates.ts";

function snapshot(second: number, bytes: Record<string, number>) {
  return {
    at: new Date(1_700_000_000_000 + second * 1000).toISOString(),
    interfaces: Object.entries(bytes).map(([name, received]) => ({
      name,
      role: "wan",
      is_up: true,
      ip: "",
      received,
      sent: received / 2,
    })),
  };
}

test("a rate is bits a second between two snapshots", () => {
  const rates = new Rates();
  rates.take(snapshot(0, { wan1: 1000 }));
  assert.equal(rates.latest("wan1"), 0);
  rates.take(snapshot(2, { wan1: 3000 }));
  assert.deepEqual(rates.series.get("wan1"), { received: [8000], sent: [4000] });
  assert.equal(rates.latest("wan1"), 12_000);
});

test("counters that fell are a gap, and so is an interface that was not there", () => {
  const rates = new Rates();
  rates.take(snapshot(0, { wan1: 5000 }));
  rates.take(snapshot(2, { wan1: 100 }));
  rates.take(snapshot(4, { wan1: 200, ppp0: 0 }));
  rates.take(snapshot(6, { wan1: 300, ppp0: 250 }));
  rates.take(snapshot(8, { wan1: 400 }));
  assert.deepEqual(rates.series.get("wan1")?.received, [null, 400, 400, 400]);
  assert.deepEqual(rates.series.get("ppp0")?.received, [null, null, 1000, null]);
});

test("a snapshot that is not newer is passed over", () => {
  const rates = new Rates();
  rates.take(snapshot(4, { wan1: 1000 }));
  rates.take(snapshot(4, { wan1: 2000 }));
  assert.equal(rates.times.length, 0);
});

test("a clock that was set back begins anew: times ascend", () => {
  const rates = new Rates();
  for (const second of [100, 102, 104, 50, 52, 54]) rates.take(snapshot(second, { wan1: second }));
  assert.deepEqual(
    rates.times.map((time) => time - 1_700_000_000),
    [52, 54],
  );
  assert.deepEqual(rates.series.get("wan1")?.received, [8, 8]);
});

test("the busiest are told from the rest, which are summed", () => {
  const rates = new Rates();
  rates.take(snapshot(0, { a: 0, b: 0, c: 0, d: 0 }));
  rates.take(snapshot(8, { a: 10, b: 1000, c: 20, d: 500 }));
  rates.take(snapshot(16, { a: 20, b: 1000, d: 500 }));
  assert.deepEqual(rates.busiest(["a", "b", "c", "d", "gone"], 2), ["b", "d"]);
  assert.deepEqual(rates.together(["a", "c", "gone"]), { received: [30, 10], sent: [15, 5] });
  assert.deepEqual(rates.together(["c"]).received, [20, null]);
  assert.deepEqual(rates.together(["gone"]).sent, [null, null]);
});

test("the buffers are bounded, also when interfaces come and go for days", () => {
  const rates = new Rates();
  for (let second = 0; second < SAMPLES_MAX + 20; second += 1) {
    rates.take(snapshot(second, { wan1: second, [`ppp${second}`]: 1 }));
    rates.take(snapshot(second + 0.5, { wan1: second, [`ppp${second}`]: 2 }));
  }
  assert.equal(rates.times.length, SAMPLES_MAX);
  assert.equal(rates.series.get("wan1")?.received.length, SAMPLES_MAX);
  assert.ok(rates.series.size <= SAMPLES_MAX / 2 + 2, `${rates.series.size} series`);
});

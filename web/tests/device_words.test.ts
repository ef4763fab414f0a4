import assert from "node:assert/strict";
import { test } from "node:test";
import { DeviceWords } from "../src/lib/device_words.ts";
import { deviceZh } from "../src/messages/device_zh.ts";

const words = new DeviceWords(deviceZh);

function filled(text: string): string {
  return text.replaceAll("(s)", "").replace(/\{>?(\w+)\}/g, (_, name) => (name === "n" ? "7" : name));
}

test("every sentence of the catalogue is found, none hidden by one before it", () => {
  for (const [own, other] of Object.entries(deviceZh)) {
    // A place that holds more of the device's words is filled with what it has no words for.
    const expected = other.replace(/\{(\w+)\}/g, (_, name) => (name === "n" ? "7" : name));
    assert.equal(words.translate(filled(own)), expected, own);
  }
});

test("both sides of a sentence have the same places", () => {
  const places = (text: string): string[] =>
    [...text.matchAll(/\{>?(\w+)\}/g)].map((found) => found[1] ?? "").sort();
  for (const [own, other] of Object.entries(deviceZh)) {
    assert.deepEqual(places(other), places(own), own);
  }
});

test("sentences within sentences, and several together, are told in the other language", () => {
  for (const [own, other] of [
    [
      "the line pptp_1 is offline: no PPTP server answers at 192.0.2.1",
      "线路 pptp_1 离线：PPTP 服务器 192.0.2.1 无响应",
    ],
    [
      "rule for 10.0.0.5 saved; 2 rules are blocked, as there is no node hk",
      "已保存 10.0.0.5 的规则；2 条规则被阻断，原因：节点 hk 不存在",
    ],
    ["12 rules imported, 1 skipped", "已导入 12 条规则，跳过 1 行"],
    [
      "2 rules imported, 1 skipped; line 3: ip must be an IPv4 address; port must be free: x listens on 80",
      "已导入 2 条规则，跳过 1 行；第 3 行：ip 应为：IPv4 地址；port 80 已被占用：x",
    ],
    ["there is no node x", "节点 x 不存在"],
    [
      "the line a is offline: the line is disabled; the interface wan2 is down",
      "线路 a 离线：线路已停用；接口 wan2 未连接",
    ],
    ["rule 7 (10.0.0.0/24) covers 10.0.0.5", "规则 7 (10.0.0.0/24) 包含 10.0.0.5"],
  ] as const) {
    assert.equal(words.translate(own), other);
  }
});

test("what is not known stays as it is, and so do names", () => {
  for (const text of ["", "nobody foresaw this", "one thing; another", "节点 hk", "a; b".repeat(999)]) {
    assert.equal(words.translate(text).replaceAll("；", "; "), text);
  }
  assert.equal(words.translate("node line saved"), "已保存节点 line");
  assert.equal(words.translate("node a+(b)$& saved"), "已保存节点 a+(b)$&");
});

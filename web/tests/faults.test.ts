import assert from "node:assert/strict";
import { test } from "node:test";
import { DeviceWords } from "../src/lib/device_words.ts";
import { byField, fieldOf, FaultWords, type Fault } from "../src/lib/faults.ts";
import { deviceZh } from "../src/messages/device_zh.ts";
import { faultsZh } from "../src/messages/faults_zh.ts";

const words = new FaultWords(faultsZh, new DeviceWords(deviceZh));

function fault(pointer: string, code = "empty", values: Fault["values"] = {}): Fault {
  return { pointer, code, values, detail: `${code} at ${pointer}` };
}

test("a fault goes to the field that its pointer leads to, by the longest way", () => {
  const ip = fault("/ip");
  const port = fault("/config_json/port");
  const config = fault("/config_json/portable");
  const item = fault("/dns_servers/1");
  const body = fault("");
  assert.deepEqual(
    byField(
      [ip, port, body, config, item],
      ["ip", "dns_servers", "config_json/port", "config_json", "i"],
    ),
    {
      ip: [ip],
      "config_json/port": [port],
      "": [body],
      config_json: [config],
      dns_servers: [item],
    },
  );
});

test("a pointer is spelled as the device's sentences spell the field", () => {
  for (const [pointer, field] of [
    ["", "body"],
    ["/ip", "ip"],
    ["/items/2/name", "items[2].name"],
    ["/config_json/a~1b~01", "config_json.a/b~1"],
    ["/7", "7"],
  ] as const) {
    assert.equal(fieldOf(pointer), field);
  }
});

test("a fault is told by its code and values, and what they hold of the device's words", () => {
  for (const [one, text] of [
    [fault("/port", "whole-number", { least: 1, most: 65535 }), "port 应为：1 到 65535 的整数"],
    [fault("/protocol", "one-of", { choices: ["ss", "vmess"] }), "protocol 应为：以下之一：ss, vmess"],
    [fault("/name", "name-taken", { thing: "node", name: "{field}" }), "name 已被使用：节点 {field} 已存在"],
    [fault("/id", "no-such-id", { thing: "rule", id: 7 }), "不存在 id 为 7 的规则"],
    [
      fault("", "no-way-to-try", { reason: "the line a is disabled" }),
      "没有可以尝试的路径：线路 a 已停用",
    ],
  ] as const) {
    assert.equal(words.sentence(one), text);
  }
});

test("a fault of a code that is not known is told as the device tells it", () => {
  const unknown = { ...fault("/ip", "of-tomorrow"), detail: "ip must not be empty" };
  assert.equal(words.sentence(unknown), "ip 不能为空");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { asSentence, byField, fieldOf, type Fault, withLabels } from "../src/lib/faults.ts";
import { Sentences, type Coded } from "../src/lib/sentences.ts";
import { sentencesZh, wordsZh } from "../src/messages/sentences_zh.ts";

const words = new Sentences(sentencesZh, wordsZh);

function coded(code: string, values: Coded["values"] = {}): Coded {
  return { code, values, text: `${code} in English` };
}

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

test("a fault is shown by its code and values", () => {
  for (const [one, text] of [
    [fault("/port", "whole-number", { least: 1, most: 65535 }), "port 应为：1 到 65535 的整数"],
    [fault("/protocol", "one-of", { choices: ["ss", "vmess"] }), "protocol 应为：以下之一：ss, vmess"],
    [fault("/name", "name-taken", { thing: "node", name: "{field}" }), "name 已被使用：节点 {field} 已存在"],
    [fault("/id", "no-such-id", { thing: "rule", id: 7 }), "不存在 id 为 7 的规则"],
    [
      fault("", "no-way-to-try", { reason: coded("line-disabled", { name: "a" }) }),
      "没有可以尝试的路径：线路 a 已停用",
    ],
    [
      fault("/id", "missing", { takes: coded("whole-number", { least: 1, most: 9 }) }),
      "缺少 id，应为：1 到 9 的整数",
    ],
    [
      fault("", "name-unsuitable", { name: "hk", reason: coded("empty", { field: "server" }) }),
      "body 不适合引用它的节点 hk：server 不能为空",
    ],
  ] as const) {
    assert.equal(words.translated(asSentence(one)), text);
  }
});

test("a fault is shown with the labels of the fields that it speaks of", () => {
  const labels: Record<string, string> = {
    "config_json/dns-profile": "DNS",
    config_json: "All fields",
    dns_servers: "DNS servers",
    ip: "客户端",
    name: "Name",
    node_dns_profile: "DNS",
  };
  const labelOf = (field: string): string | undefined => labels[field];
  const english = (pointer: string, detail: string, values: Fault["values"] = {}): string =>
    withLabels(asSentence({ pointer, code: "x", values, detail }, labelOf).text, labelOf);
  for (const [shown, text] of [
    [english("/name", "name must not be another's: a node name"), "Name must not be another's: a node name"],
    [english("/dns_servers/1", "dns_servers[1] must be x"), "DNS servers 2 must be x"],
    [english("/config_json/port", "config_json.port must be x"), "port must be x"],
    [english("/config_json/ws-opts/path", "config_json.ws-opts.path is y"), "ws-opts.path is y"],
    [english("/unknown", "unknown is not a field here"), "unknown is not a field here"],
    [english("", "body must be JSON"), "body must be JSON"],
    [
      english("/config_json/dns-servers", "config_json.dns-servers: dns-profile is custom", {
        profile: "dns-profile",
      }),
      "dns-servers: DNS is custom",
    ],
    [english("/name", "name: its node_dns_profile is x"), "Name: its DNS is x"],
  ] as const) {
    assert.equal(shown, text);
  }
  const ip = asSentence(fault("/ip", "ipv4-address"), labelOf);
  assert.equal(words.translated(ip), "客户端 应为：IPv4 地址");
});

test("sentences within sentences, and several together, are in the other language", () => {
  const offline = coded("line-offline", {
    name: "pptp_1",
    reason: coded("own-line-disabled"),
  });
  for (const [one, text] of [
    [offline, "线路 pptp_1 离线：线路已停用"],
    [
      coded("several", { parts: [coded("rule-saved", { ip: "10.0.0.5" }), offline] }),
      "已保存 10.0.0.5 的规则；线路 pptp_1 离线：线路已停用",
    ],
    [coded("gone", { kind: "group", name: "rule" }), "节点组 rule 不存在"],
    [coded("step-egress", { egresses: ["wan1", "wan2"] }), "从 wan1 或 wan2 出去"],
    [coded("saved", { thing: "node", name: "a+(b)$& {name}" }), "已保存节点 a+(b)$& {name}"],
  ] as const) {
    assert.equal(words.translated(one), text);
  }
});

test("a line's reason and its encryption are in the other language, with the server's words", () => {
  const ipsec = coded("ipsec", { ike: ["AES_CBC_128", "MODP_1024"], esp: ["AES_CBC_128"] });
  for (const [one, text] of [
    [coded("login-refused-saying", { said: "E=691 {x}" }), "服务器拒绝了用户名或密码：E=691 {x}"],
    [
      coded("given-address-refused", {
        address: "10.0.0.5",
        whose: coded("whose-lan", { name: "lan0" }),
      }),
      "服务器分配的地址 10.0.0.5 属于局域网 lan0，不能使用",
    ],
    [coded("programs-missing", { packages: ["ppp", "xl2tpd"] }), "缺少程序：apt install ppp xl2tpd"],
    [
      coded("module-missing", { what: "PPTP's encryption", module: "ppp_mppe" }),
      "当前内核不支持 PPTP 加密：缺少模块 ppp_mppe，Debian 的 linux-image-amd64 带有它",
    ],
    [
      coded("with-weak-parts", { encryption: ipsec, parts: ["MODP_1024"] }),
      "IKE AES_CBC_128/MODP_1024，ESP AES_CBC_128；较弱：MODP_1024",
    ],
  ] as const) {
    assert.equal(words.translated(one), text);
  }
});

test("a sentence without a known code stays as it is", () => {
  assert.equal(words.translated(coded("of-tomorrow")), "of-tomorrow in English");
  assert.equal(words.translated(coded("other", { text: "no memory" })), "no memory");
  const nested = coded("other", { text: coded("silent") });
  assert.equal(words.translated(nested), "无响应");
});

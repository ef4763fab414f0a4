/** The parts of a node's `config_json`, a Clash proxy entry, that the page shows. */

import type { Node } from "./types.ts";

export type Config = Record<string, unknown>;

export const PROTOCOLS = [
  "socks5",
  "http",
  "ss",
  "vmess",
  "vless",
  "trojan",
  "hysteria",
  "hysteria2",
  "tuic",
  "anytls",
  "ssh",
  "wireguard",
] as const;

/** Fields that most nodes of a protocol have, besides `server` and `port`. */
export const USUAL_FIELDS: Record<string, readonly string[]> = {
  socks5: ["username", "password"],
  http: ["username", "password"],
  ss: ["cipher", "password"],
  vmess: ["uuid", "cipher", "servername"],
  vless: ["uuid", "flow", "servername"],
  trojan: ["password", "sni"],
  hysteria: ["auth-str", "up", "down", "sni"],
  hysteria2: ["password", "sni"],
  tuic: ["uuid", "password", "sni"],
  anytls: ["password", "sni"],
  ssh: ["username", "password"],
  wireguard: ["private-key", "public-key", "ip"],
};

const read = new WeakMap<Node, Config>();

/** The configuration as an object; empty if the text is not a JSON object. */
export function configOf(node: Node): Config {
  let config = read.get(node);
  if (config === undefined) {
    config = parseConfig(node.config_json) ?? {};
    read.set(node, config);
  }
  return config;
}

/** Parse configuration text; null unless it is a JSON object. */
export function parseConfig(text: string): Config | null {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value)
      ? (value as Config)
      : null;
  } catch {
    return null;
  }
}

export function serverOf(node: Node): string {
  const { server = "", port = "", ports } = configOf(node) as Record<string, string | number>;
  const shown = String(server).includes(":") ? `[${server}]` : String(server);
  return `${shown}:${port || ports || ""}`;
}

/** The path to the node itself: an interface, another node, or "" for the default path. */
export function egressOf(node: Node): string {
  const config = configOf(node);
  const relay = config["dialer-proxy"];
  if (typeof relay === "string" && relay) return relay;
  const name = config["interface-name"];
  return typeof name === "string" && name ? `Interface:${name}` : "";
}

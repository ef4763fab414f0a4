/** What the palette finds: pages, actions, clients, devices, nodes, groups, lines and
 * subscriptions. Pure. */

import type { PageName } from "../lib/router.svelte.ts";
import type { Device, Line, Node, Rule, Subscription } from "../lib/types.ts";
import { termText } from "../table/order.ts";

export type FoundKind =
  | "page"
  | "action"
  | "client"
  | "device"
  | "node"
  | "group"
  | "line"
  | "subscription";

/** Something that can be gone to. */
export interface Found {
  kind: FoundKind;
  title: string;
  detail: string;
  page: PageName;
  query: Record<string, string>;
}

interface Entry {
  found: Found;
  /** The title in lower case, and all that is searched. */
  title: string;
  text: string;
}

/** The lists of the device. */
export interface Lists {
  rules: readonly Rule[];
  nodes: readonly Node[];
  /** Names of groups; those that nodes bear need not be among them. */
  groups: readonly string[];
  lines: readonly Line[];
  subscriptions: readonly Subscription[];
  devices: readonly Device[];
}

/** Things that are found before others of the same rank. */
const ORDER: readonly FoundKind[] = [
  "page",
  "action",
  "group",
  "line",
  "subscription",
  "node",
  "client",
  "device",
];
/** Ranks of a match: the whole title, its beginning, the beginning of a word in it, any other. */
const RANKS = 4;

export function entryOf(found: Found, more = ""): Entry {
  const text = `${found.title} ${found.detail} ${more}`;
  return { found, title: found.title.toLowerCase(), text: text.toLowerCase() };
}

/** Return the entries of all that the lists hold, in the order of `ORDER`. */
export function entriesOf(lists: Lists): Entry[] {
  const { rules, nodes, groups: named, lines, subscriptions, devices } = lists;
  const byIp = new Map<string, Device>();
  for (const device of devices)
    for (const { ip } of device.addresses) if (!byIp.has(ip)) byIp.set(ip, device);
  const groups = new Map(named.map((name) => [name, 0]));
  for (const { group } of nodes) if (group) groups.set(group, (groups.get(group) ?? 0) + 1);
  return [
    ...[...groups].map(([name, n]) =>
      entryOf({ kind: "group", title: name, detail: n ? String(n) : "", page: "groups", query: { q: name } }),
    ),
    ...lines.map(({ name, server, comment }) =>
      entryOf({ kind: "line", title: name, detail: comment || server, page: "lines", query: { q: termText("name", name) } }),
    ),
    ...subscriptions.map(({ name, host }) =>
      entryOf({ kind: "subscription", title: name, detail: host, page: "subscriptions", query: { q: name } }),
    ),
    ...nodes.map(({ name, group, protocol }) =>
      entryOf({ kind: "node", title: name, detail: group || protocol, page: "nodes", query: { q: termText("name", name) } }),
    ),
    ...rules.map((rule) => ofRule(rule, byIp.get(rule.ip))),
    ...devices.filter((device) => device.rule_id === null).map(ofDevice),
  ];
}

function ofRule({ ip, target_node: target, comment, mac }: Rule, device?: Device): Entry {
  const names = device ? `${device.name} ${device.hostname} ${device.mac}` : "";
  const named = comment || device?.name || device?.hostname;
  const detail = named ? `${named} · ${target}` : target;
  const found: Found = { kind: "client", title: ip, detail, page: "rules", query: { q: termText("ip", ip) } };
  return entryOf(found, `${names} ${mac}`);
}

function ofDevice(device: Device): Entry {
  const { mac, name, hostname, vendor, comment, addresses } = device;
  const ips = addresses.map((each) => each.ip).join(" ");
  const title = name || hostname || vendor || mac;
  const found: Found = { kind: "device", title, detail: ips || mac, page: "devices", query: { q: mac } };
  return entryOf(found, `${mac} ${hostname} ${vendor} ${comment} ${ips}`);
}

/** Return the best `most` of the entries that have every word of `typed`, and how many there are. */
export function search(
  entries: readonly Entry[],
  typed: string,
  most: number,
): { shown: Found[]; total: number } {
  const whole = typed.trim().toLowerCase();
  const words = whole.split(/\s+/).filter(Boolean);
  const ranked = Array.from({ length: RANKS }, (): Found[] => []);
  let total = 0;
  for (const { found, title, text } of entries) {
    if (!words.every((word) => text.includes(word))) continue;
    total += 1;
    ranked[rankOf(title, whole)]?.push(found);
  }
  for (const some of ranked) some.sort((a, b) => ORDER.indexOf(a.kind) - ORDER.indexOf(b.kind));
  return { shown: ranked.flat().slice(0, most), total };
}

function rankOf(title: string, whole: string): number {
  if (title === whole) return 0;
  const at = title.indexOf(whole);
  if (at === 0) return 1;
  return at > 0 && /[^\p{L}\p{N}]/u.test(title[at - 1] ?? "") ? 2 : 3;
}

/** Return the IPv4 address that is typed; empty if it is none. */
export function addressIn(typed: string): string {
  const text = typed.trim();
  const parts = text.split(".");
  const isPart = (part: string): boolean => /^\d{1,3}$/.test(part) && Number(part) < 256;
  return parts.length === 4 && parts.every(isPart) ? text : "";
}

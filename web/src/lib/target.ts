/** The forms of a rule's target. */

export type TargetKind = "node" | "group" | "interface" | "direct" | "reject";

export interface Target {
  kind: TargetKind;
  /** Without its prefix. */
  name: string;
}

/** Read a target as the API writes it; its prefixes are exact. */
export function parseTarget(text: string): Target {
  if (text === "DIRECT") return { kind: "direct", name: text };
  if (text === "REJECT") return { kind: "reject", name: text };
  if (text.startsWith("Group_")) return { kind: "group", name: text.slice(6) };
  if (text.startsWith("Interface:")) return { kind: "interface", name: text.slice(10) };
  return { kind: "node", name: text };
}

/** A number that orders limits: none is the largest. */
export function limitOrder(kbps: number): number {
  return kbps === 0 ? Infinity : kbps;
}

/** A number that orders IPv4 addresses and CIDRs as people expect: by address, then width. */
export function addressOrder(ip: string): number {
  const [address = "", width = "32"] = ip.split("/");
  let value = 0;
  for (const octet of address.split(".")) value = value * 256 + Number(octet);
  return value * 64 + Number(width);
}

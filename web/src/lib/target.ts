/** The forms of a rule's target. */

export type TargetKind = "node" | "group" | "interface" | "direct" | "reject";

export interface Target {
  kind: TargetKind;
  /** The name without its prefix. */
  name: string;
}

/** Parse a target as the API writes it; prefixes match exactly. */
export function parseTarget(text: string): Target {
  if (text === "DIRECT") return { kind: "direct", name: text };
  if (text === "REJECT") return { kind: "reject", name: text };
  if (text.startsWith("Group_")) return { kind: "group", name: text.slice(6) };
  if (text.startsWith("Interface:")) return { kind: "interface", name: text.slice(10) };
  return { kind: "node", name: text };
}

/** The sort key of a limit in kbit/s: "unlimited" (0) is the largest. */
export function limitOrder(kbps: number): number {
  return kbps === 0 ? Infinity : kbps;
}

/** The sort key of an IPv4 address or CIDR: by address, then by prefix length. */
export function addressOrder(ip: string): number {
  const [address = "", width = "32"] = ip.split("/");
  let value = 0;
  for (const octet of address.split(".")) value = value * 256 + Number(octet);
  return value * 64 + Number(width);
}

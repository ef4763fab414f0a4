/** Who is blocked when nodes are deleted. */

import { configOf } from "./node_config.ts";
import type { Node, Rule } from "./types.ts";

export interface NodeLoss {
  /** Enabled rules whose target is gone. */
  rules: number;
  /** Nodes that stay, and were dialled through one that does not. */
  relayed: number;
  isListedCut: boolean;
  isUnmanagedCut: boolean;
}

/** `listed` and `unmanaged` are where the whitelist's destinations and clients without a rule go. */
export function lossOf(
  gone: readonly Node[],
  nodes: readonly Node[],
  rules: readonly Rule[],
  { listed, unmanaged }: { listed: string; unmanaged: string },
): NodeLoss {
  const lost = new Set(gone.map((node) => node.name));
  const living = nodes.filter((node) => !lost.has(node.name));
  // A relay may itself be dialled through another.
  let before: number;
  do {
    before = lost.size;
    for (const node of living) {
      if (lost.has(String(configOf(node)["dialer-proxy"] ?? ""))) lost.add(node.name);
    }
  } while (lost.size > before);
  // What names a group without nodes was blocked before.
  const cut = new Set([...lost, ...nodes.map((node) => `Group_${node.group}`)]);
  for (const node of nodes) {
    if (!lost.has(node.name)) cut.delete(`Group_${node.group}`);
  }
  return {
    rules: rules.filter((rule) => rule.is_enabled && cut.has(rule.target_node)).length,
    relayed: living.filter((node) => lost.has(node.name)).length,
    isListedCut: cut.has(listed),
    isUnmanagedCut: cut.has(unmanaged),
  };
}

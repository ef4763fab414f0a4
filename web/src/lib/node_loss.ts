/** The clients, nodes and destinations that are blocked if nodes are deleted. */

import { configOf } from "./node_config.ts";
import type { Node, Rule } from "./types.ts";

export interface NodeLoss {
  /** Number of enabled rules whose target stops working. */
  rules: number;
  /** Number of remaining nodes that are dialled through a deleted one. */
  relayed: number;
  isListedCut: boolean;
  isUnmanagedCut: boolean;
}

/** `listed` and `unmanaged`: targets of the whitelist and of clients without a rule. */
export function lossOf(
  gone: readonly Node[],
  nodes: readonly Node[],
  rules: readonly Rule[],
  { listed, unmanaged }: { listed: string; unmanaged: string },
): NodeLoss {
  const lost = new Set(gone.map((node) => node.name));
  const living = nodes.filter((node) => !lost.has(node.name));
  // A relay may itself be dialled through another relay.
  let before: number;
  do {
    before = lost.size;
    for (const node of living) {
      if (lost.has(String(configOf(node)["dialer-proxy"] ?? ""))) lost.add(node.name);
    }
  } while (lost.size > before);
  // A rule that names a group without nodes was blocked before.
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

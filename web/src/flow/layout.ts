/**
 * Where the parts of the flow picture stand: clients on the left, targets in the middle,
 * egresses on the right, ribbons between them as wide as the clients are many. Pure.
 */

import type { Flow } from "../lib/types.ts";

export const BLOCKED = "";
/** The name of the end that blocked clients' ribbons lead to. */

const TARGETS_MAX = 10;
const GAP = 8;
const BLOCK_MIN = 22;
const RIBBON_MIN = 2;
const HEIGHT_MIN = 150;

export interface Block {
  id: string;
  clients: number;
  y: number;
  height: number;
}

export interface Ribbon {
  target: string;
  /** An egress, `BLOCKED`, or null for what comes from the clients. */
  egress: string | null;
  clients: number;
  /** Middles of its two ends, and its width. */
  from: number;
  to: number;
  width: number;
}

export interface Picture {
  height: number;
  clients: Block;
  targets: Block[];
  egresses: Block[];
  ribbons: Ribbon[];
  /** Targets that found no room of their own, told together. */
  others: number;
}

/** Lay out the flows of enabled clients. */
export function layout(flows: readonly Flow[]): Picture {
  const used = flows.filter((flow) => flow.clients > 0).sort((a, b) => b.clients - a.clients);
  // Blocked ones last: their ribbons, which end at the bottom, then cross nobody's.
  const shown = used
    .slice(0, TARGETS_MAX)
    .sort((a, b) => Number(isBlocked(a)) - Number(isBlocked(b)));
  const total = used.reduce((sum, flow) => sum + flow.clients, 0);
  const shownTotal = shown.reduce((sum, flow) => sum + flow.clients, 0);

  // A share of the height by share of the clients, and room for a label at least.
  const scale = Math.max(HEIGHT_MIN, shown.length * 26) / Math.max(1, shownTotal);
  const tall = (clients: number): number => Math.max(BLOCK_MIN, clients * scale);

  const shares = shown.map((flow) => ({ flow, ends: endsOf(flow) }));
  const targets = stacked(shown.map((flow) => ({ id: flow.target, clients: flow.clients })), tall);
  const egresses = stacked(byCentre(shares), tall);

  const height = Math.max(bottom(targets), bottom(egresses), HEIGHT_MIN);
  center(targets, height);
  center(egresses, height);
  const source = Math.min(height, Math.max(BLOCK_MIN * 2, shownTotal * scale));
  const clients = { id: "", clients: total, y: (height - source) / 2, height: source };
  return {
    height,
    clients,
    targets,
    egresses,
    ribbons: [...inward(clients, targets), ...outward(shares, targets, egresses)],
    others: used.length - shown.length,
  };
}

function isBlocked(flow: Flow): boolean {
  return flow.problem !== "" || flow.egresses.length === 0;
}

function endsOf(flow: Flow): string[] {
  return isBlocked(flow) ? [BLOCKED] : flow.egresses;
}

/** The ends, ordered by the middle of the targets that lead there, so that few ribbons cross. */
function byCentre(
  shares: readonly { flow: Flow; ends: string[] }[],
): { id: string; clients: number }[] {
  const ends = new Map<string, { id: string; clients: number; moment: number }>();
  shares.forEach(({ flow, ends: ids }, place) => {
    for (const id of ids) {
      const end = ends.get(id) ?? { id, clients: 0, moment: 0 };
      ends.set(id, end);
      end.clients += flow.clients / ids.length;
      end.moment += (place * flow.clients) / ids.length;
    }
  });
  return [...ends.values()].sort((a, b) => a.moment / a.clients - b.moment / b.clients);
}

function stacked(
  items: { id: string; clients: number }[],
  tall: (clients: number) => number,
): Block[] {
  let y = 0;
  return items.map((item) => {
    const block = { ...item, y, height: tall(item.clients) };
    y += block.height + GAP;
    return block;
  });
}

function bottom(blocks: readonly Block[]): number {
  const last = blocks.at(-1);
  return last ? last.y + last.height : 0;
}

function center(blocks: Block[], height: number): void {
  const shift = (height - bottom(blocks)) / 2;
  for (const block of blocks) block.y += shift;
}

/** A block's edge, dealt out from its top in proportion to clients. */
class Edge {
  #at: number;
  #scale: number;

  constructor(block: Block) {
    this.#at = block.y;
    this.#scale = block.height / Math.max(1, block.clients);
  }

  take(clients: number): { middle: number; width: number } {
    const width = clients * this.#scale;
    const middle = this.#at + width / 2;
    this.#at += width;
    return { middle, width };
  }
}

function inward(clients: Block, targets: readonly Block[]): Ribbon[] {
  const shown = targets.reduce((sum, target) => sum + target.clients, 0);
  const left = new Edge({ ...clients, clients: shown });
  return targets.map((target) => {
    const from = left.take(target.clients);
    const to = new Edge(target).take(target.clients);
    return {
      target: target.id,
      egress: null,
      clients: target.clients,
      from: from.middle,
      to: to.middle,
      width: Math.max(RIBBON_MIN, Math.min(from.width, to.width)),
    };
  });
}

function outward(
  shares: readonly { flow: Flow; ends: string[] }[],
  targets: readonly Block[],
  egresses: readonly Block[],
): Ribbon[] {
  const edges = new Map(egresses.map((egress) => [egress.id, new Edge(egress)]));
  return shares.flatMap(({ flow, ends }, at) => {
    const target = targets[at];
    if (!target) return [];
    const left = new Edge(target);
    return ends.flatMap((end) => {
      const clients = flow.clients / ends.length;
      const from = left.take(clients);
      const to = edges.get(end)?.take(clients);
      if (!to) return [];
      const width = Math.max(RIBBON_MIN, Math.min(from.width, to.width));
      return [{ target: flow.target, egress: end, clients, from: from.middle, to: to.middle, width }];
    });
  });
}

/**
 * The layout of the flow picture: clients on the left, targets in the middle, egresses on the
 * right, and ribbons between them as wide as their traffic. Pure.
 */

import type { Flow, Overview } from "../lib/types.ts";

/** The id of the end that blocked clients' ribbons lead to. */
export const BLOCKED = "";

const TARGETS_MAX = 10;
const GAP = 8;
const BLOCK_MIN = 22;
const RIBBON_MIN = 2;
const HEIGHT_MIN = 150;
/** Bits per second of all clients. Below this, widths show the number of clients. */
const TRAFFIC_MIN = 1000;
/** Share of all traffic that is added to each target's, so that idle targets have a ribbon. */
const IDLE_SHARE = 0.01;

export interface Block {
  id: string;
  clients: number;
  /** The value that the height shows: bits per second, or clients. */
  weight: number;
  y: number;
  height: number;
}

export interface Ribbon {
  target: string;
  /** An egress, `BLOCKED`, or null for a ribbon from the clients to the target. */
  egress: string | null;
  weight: number;
  /** The vertical middles of the two ends, and the width. */
  from: number;
  to: number;
  width: number;
}

export interface Picture {
  height: number;
  /** True if widths show traffic; else they show clients. */
  isByTraffic: boolean;
  clients: Block;
  targets: Block[];
  egresses: Block[];
  ribbons: Ribbon[];
  /** Number of targets that are not drawn. */
  others: number;
}

/** The flows that the device has sent, and the total numbers of rules and targets. */
interface Flows {
  flows: readonly Flow[];
  counts: Pick<Overview["counts"], "enabled_rules" | "targets">;
}

type Item = Pick<Block, "id" | "clients" | "weight">;

interface Share extends Item {
  flow: Flow;
  ends: string[];
}

/** Lay out the flows of enabled clients. */
export function layout({ flows, counts }: Flows): Picture {
  const used = flows.filter((flow) => flow.clients > 0);
  const traffic = used.reduce((sum, flow) => sum + trafficOf(flow), 0);
  const isByTraffic = traffic >= TRAFFIC_MIN;
  const shares = used
    .map((flow): Share => {
      const weight = isByTraffic ? trafficOf(flow) + IDLE_SHARE * traffic : flow.clients;
      return { id: flow.target, clients: flow.clients, weight, flow, ends: endsOf(flow) };
    })
    .sort((a, b) => b.weight - a.weight)
    .slice(0, TARGETS_MAX)
    // The order does not depend on the traffic. Blocked targets are last: their ribbons end at
    // the bottom, and then do not cross others.
    .sort(
      (a, b) =>
        Number(isBlocked(a.flow)) - Number(isBlocked(b.flow)) ||
        b.clients - a.clients ||
        (a.id < b.id ? -1 : 1),
    );
  const weight = shares.reduce((sum, share) => sum + share.weight, 0);

  // Heights are proportional to weights, with room for at least a label.
  const scale = Math.max(HEIGHT_MIN, shares.length * 26) / (weight || 1);
  const tall = (item: Item): number => Math.max(BLOCK_MIN, item.weight * scale);

  const targets = stacked(shares, tall);
  const egresses = stacked(byCentre(shares), tall);

  const height = Math.max(bottom(targets), bottom(egresses), HEIGHT_MIN);
  center(targets, height);
  center(egresses, height);
  const source = Math.min(height, Math.max(BLOCK_MIN * 2, weight * scale));
  const clients = {
    id: "",
    clients: counts.enabled_rules,
    weight,
    y: (height - source) / 2,
    height: source,
  };
  return {
    height,
    isByTraffic,
    clients,
    targets,
    egresses,
    ribbons: [...inward(clients, targets, scale), ...outward(shares, targets, egresses, scale)],
    others: used.length - shares.length + counts.targets - flows.length,
  };
}

export function trafficOf(flow: Flow): number {
  return flow.upload_bps + flow.download_bps;
}

function isBlocked(flow: Flow): boolean {
  return flow.problem_coded !== null || flow.egresses.length === 0;
}

function endsOf(flow: Flow): string[] {
  return isBlocked(flow) ? [BLOCKED] : flow.egresses;
}

/** The ends, ordered by the middle of the targets that lead to them, so that few ribbons cross. */
function byCentre(shares: readonly Share[]): Item[] {
  const ends = new Map<string, Item & { moment: number }>();
  shares.forEach(({ clients, weight, ends: ids }, place) => {
    for (const id of ids) {
      const end = ends.get(id) ?? { id, clients: 0, weight: 0, moment: 0 };
      ends.set(id, end);
      end.clients += clients / ids.length;
      end.weight += weight / ids.length;
      end.moment += (place * clients) / ids.length;
    }
  });
  return [...ends.values()].sort((a, b) => a.moment / a.clients - b.moment / b.clients);
}

function stacked(items: readonly Item[], tall: (item: Item) => number): Block[] {
  let y = 0;
  return items.map(({ id, clients, weight }) => {
    const block = { id, clients, weight, y, height: tall({ id, clients, weight }) };
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

/** A block's edge, divided from its top in proportion to weight, also if it has minimum height. */
class Edge {
  #at: number;
  #scale: number;

  constructor(block: Block) {
    this.#at = block.y;
    this.#scale = block.height / (block.weight || 1);
  }

  /** Return the middle of the next part. */
  take(weight: number): number {
    const height = weight * this.#scale;
    this.#at += height;
    return this.#at - height / 2;
  }
}

function inward(clients: Block, targets: readonly Block[], scale: number): Ribbon[] {
  const left = new Edge(clients);
  return targets.map((target) => ({
    target: target.id,
    egress: null,
    ...between(left, new Edge(target), target.weight, scale),
  }));
}

function outward(
  shares: readonly Share[],
  targets: readonly Block[],
  egresses: readonly Block[],
  scale: number,
): Ribbon[] {
  const edges = new Map(egresses.map((egress) => [egress.id, new Edge(egress)]));
  return shares.flatMap(({ id, weight, ends }, at) => {
    const target = targets[at];
    if (!target) return [];
    const left = new Edge(target);
    return ends.flatMap((end) => {
      const right = edges.get(end);
      if (!right) return [];
      return [{ target: id, egress: end, ...between(left, right, weight / ends.length, scale) }];
    });
  });
}

function between(
  left: Edge,
  right: Edge,
  weight: number,
  scale: number,
): Omit<Ribbon, "target" | "egress"> {
  const width = Math.max(RIBBON_MIN, weight * scale);
  return { weight, from: left.take(weight), to: right.take(weight), width };
}

/** Pixels of most letters, of broad ones, and of Chinese ones, in the picture's font. */
const LETTER = 7.4;
const BROAD = 11.5;
const SQUARE = 14.5;

/** Shorten a text to about `room` pixels, but not to nothing. */
export function fitted(text: string, room: number): string {
  const letters = [...text];
  let used = 0;
  for (const [at, letter] of letters.entries()) {
    const size = /[mwMW@%]/.test(letter) ? BROAD : letter < "\u1100" ? LETTER : SQUARE;
    used += size;
    const isLast = at === letters.length - 1;
    if (used + (isLast ? 0 : LETTER) > room) return `${letters.slice(0, Math.max(1, at)).join("")}…`;
  }
  return text;
}

/** The device's lists as cached by this page: loaded when shown, kept up to date while shown. */

import { delays } from "./delays.svelte.ts";
import { devices } from "./devices.svelte.ts";
import { merged } from "./difference.ts";
import { exits } from "./exits.svelte.ts";
import { faultText } from "./feedback.svelte.ts";
import { Refused, call, request } from "./http.ts";
import { live } from "./live.svelte.ts";
import { members } from "./members.svelte.ts";
import { pastLines, pastNodes } from "./past.svelte.ts";
import { OPS, RULES_SINCE, V1 } from "./paths.ts";
import { Revisions } from "./revisions.ts";
import type { PageName } from "./router.svelte.ts";
import type { Line, Node, ProxyService, Rule, RulesSince, Said } from "./types.ts";

/** Milliseconds between two loads of a list, even if it changes many times a second. */
const RELOAD_MS = 1000;
/** Milliseconds that a list waits in addition after a failure. */
const RETRY_MS = 5000;

/** Fetches the rows, given the rows that are loaded already. */
type Reader<T> = (rows: T[], isLoaded: boolean) => Promise<T[]>;

export interface Identified {
  id: number;
}

interface Options<T> {
  reader?: (path: string) => Reader<T>;
  /** Further subjects whose changes may change these rows: a rename also changes references. */
  follows?: readonly string[];
  /** The name of its objects below `/ops`, if it is another one. */
  objects?: string;
}

export class Resource<T extends Identified> {
  readonly path: string;
  rows = $state.raw<T[]>([]);
  isLoaded = $state(false);
  problem = $state("");

  #read: Reader<T>;
  #objects: string;
  #revisions = new Revisions();
  #watchers = 0;
  #isStale = true;
  #loading: Promise<void> | null = null;
  #loadedAt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(
    name: string,
    { reader = whole, follows = [], objects = name }: Options<T> = {},
  ) {
    this.path = `${V1}/${name}`;
    this.#read = reader(this.path);
    this.#objects = `${OPS}/${objects}`;
    live.onChangeOf([name, ...follows], () => {
      this.#isStale = true;
      this.#loadSoon();
    });
  }

  /** Keep the list up to date until the returned function is called. For `$effect`. */
  watch(): () => void {
    this.#watchers += 1;
    if (this.#isStale) void this.load();
    return () => (this.#watchers -= 1);
  }

  /** Bring the list up to date. Never raises: see `problem`. */
  async load(): Promise<void> {
    this.#isStale = true;
    this.#loading ??= this.#loadWhileStale().finally(() => (this.#loading = null));
    return this.#loading;
  }

  /** Create a row from the typed fields, or change the row that was `before`: see `Revisions`. */
  async save<F extends object>(before: (T & F) | null, typed: F): Promise<Said> {
    if (before === null) return call("POST", this.#objects, typed);
    return this.#revisions.save<F>(`${this.#objects}/${before.id}`, before, typed);
  }

  /** Switch rows on or off: one by its own call, several by one call that names them in `batch`. */
  enable(
    rows: readonly { id: number }[],
    batch: Record<string, unknown>,
    is_enabled: boolean,
  ): Promise<Said> {
    const [only, another] = rows;
    return only && !another
      ? call("PATCH", `${this.path}/${only.id}/status`, { is_enabled })
      : call("PATCH", `${this.path}/batch/status`, { ...batch, is_enabled });
  }

  /** Discard everything: another operator may log in. */
  clear(): void {
    this.rows = [];
    this.isLoaded = false;
    this.problem = "";
    this.#isStale = true;
  }

  #loadSoon(): void {
    clearTimeout(this.#timer);
    const wait = Math.max(0, this.#loadedAt + RELOAD_MS - Date.now());
    this.#timer = setTimeout(() => {
      if (this.#isStale && this.#watchers > 0) void this.load();
    }, wait);
  }

  async #loadWhileStale(): Promise<void> {
    while (this.#isStale) {
      this.#isStale = false;
      this.#loadedAt = Date.now();
      try {
        this.rows = await this.#read(this.rows, this.isLoaded);
        this.problem = "";
        this.isLoaded = true;
      } catch (error) {
        this.#isStale = true;
        // The session has ended: the page shows the login, and loads the list after it.
        if (error instanceof Refused && error.status === 401) return;
        this.problem = faultText(error);
        this.#loadedAt = Date.now() + RETRY_MS;
        this.#loadSoon();
        return;
      }
    }
  }
}

/** Read all rows again if any has changed; otherwise the device answers 304. */
function whole<T>(path: string): Reader<T> {
  let etag = "";
  return async (rows, isLoaded) => {
    const answer = await request("GET", path, isLoaded ? { etag } : {});
    if (answer.status === 304) return rows;
    etag = answer.headers.get("etag") ?? "";
    return ((await answer.json()) as { data: T[] }).data;
  };
}

/** Read changed rules only: there are many, and other sessions change them meanwhile. */
function followed(): Reader<Rule> {
  let revision = 0;
  return async (rows, isLoaded) => {
    const since = isLoaded ? revision : 0;
    const told = await call<RulesSince>("GET", `${RULES_SINCE}${since}`);
    revision = told.revision;
    return told.is_whole ? told.changed : merged(rows, told);
  };
}

export const rules = new Resource<Rule>("rules", {
  reader: followed,
  follows: ["nodes", "vpn-lines"],
});
export const nodes = new Resource<Node>("nodes", { follows: ["vpn-lines"] });
export const lines = new Resource<Line>("vpn-lines", { objects: "lines" });
export const proxyServices = new Resource<ProxyService>("proxy-services", {
  follows: ["vpn-lines"],
});

/** The lists by the page that shows them. */
export const resources: Partial<Record<PageName, Pick<Resource<Identified>, "load" | "clear">>> = {
  rules,
  nodes,
  lines,
  proxies: proxyServices,
};

/** Discard a session's data, which contains passwords. */
export function clearResources(): void {
  for (const resource of Object.values(resources)) resource.clear();
  delays.clear();
  exits.clear();
  members.clear();
  pastNodes.clear();
  pastLines.clear();
  devices.clear();
}

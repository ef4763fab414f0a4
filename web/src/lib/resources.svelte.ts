/** The device's lists as this page knows them: loaded when shown, kept up while shown. */

import { Refused, call, request } from "./http.ts";
import { live } from "./live.svelte.ts";
import { V1 } from "./paths.ts";
import type { PageName } from "./router.svelte.ts";
import type { Line, Node, ProxyService, Rule, Said } from "./types.ts";

/** Where others change something many times a second, a list is loaded once in so long. */
const RELOAD_MS = 1000;

export class Resource<T> {
  readonly path: string;
  rows = $state.raw<T[]>([]);
  isLoaded = $state(false);
  problem = $state("");

  #subject: string;
  #etag = "";
  #watchers = 0;
  #isStale = true;
  #loading: Promise<void> | null = null;
  #loadedAt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(name: string) {
    this.path = `${V1}/${name}`;
    this.#subject = name;
    live.on("change", (news) => {
      if (news.subject !== this.#subject && news.subject !== "everything") return;
      this.#isStale = true;
      this.#loadSoon();
    });
  }

  /** Keep the list up until the function that this returns is called. For `$effect`. */
  watch(): () => void {
    this.#watchers += 1;
    if (this.#isStale) void this.load();
    return () => (this.#watchers -= 1);
  }

  /** Bring the list up to date. Costs a 304 where it is. Never raises: see `problem`. */
  async load(): Promise<void> {
    this.#isStale = true;
    this.#loading ??= this.#loadWhileStale().finally(() => (this.#loading = null));
    return this.#loading;
  }

  /** Give a row new fields, or make one; `key` is the end of its path. */
  put(key: string | number | undefined, body: unknown): Promise<Said> {
    return key === undefined
      ? call("POST", this.path, body)
      : call("PUT", `${this.path}/${key}`, body);
  }

  /** Switch rows on or off: one by its own call, several by one that names them in `batch`. */
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

  /** Forget everything: another operator may log in. */
  clear(): void {
    this.rows = [];
    this.isLoaded = false;
    this.#etag = "";
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
        const answer = await request("GET", this.path, this.#etag ? { etag: this.#etag } : {});
        if (answer.status !== 304) {
          this.rows = ((await answer.json()) as { data: T[] }).data;
          this.#etag = answer.headers.get("etag") ?? "";
        }
        this.problem = "";
        this.isLoaded = true;
      } catch (error) {
        this.problem = error instanceof Refused ? error.message : String(error);
        this.#isStale = true;
        return;
      }
    }
  }
}

export const rules = new Resource<Rule>("rules");
export const nodes = new Resource<Node>("nodes");
export const lines = new Resource<Line>("vpn-lines");
export const proxyServices = new Resource<ProxyService>("proxy-services");

/** By the page that shows them. */
export const resources: Partial<Record<PageName, Resource<unknown>>> = {
  rules,
  nodes,
  lines,
  proxies: proxyServices,
};

export function clearResources(): void {
  for (const resource of Object.values(resources)) resource.clear();
}

/**
 * What happens on the device, as it happens: one stream of server-sent events for the page.
 *
 * It is closed while the page is hidden, and what it gathers is bounded: a page that is open
 * for a month holds no more than one that is open for an hour.
 */

import { session } from "./session.svelte.ts";
import { OPS } from "./paths.ts";
import { Rates } from "./rates.ts";
import type { News, Overview } from "./types.ts";

const BACK_OFF_MS = [1000, 2000, 5000, 10_000, 30_000];
/** A server that sends every 2 s and is silent for so long is gone. */
const SILENCE_MS = 20_000;
const ASKED_MS = 10_000;

type Listener = (news: News) => void;

class Live {
  /** The latest snapshot. */
  overview = $state.raw<Overview | null>(null);
  isConnected = $state(false);
  /** Why clients are blocked, by the target that rules name; empty where they are not. */
  problems = $derived(
    new Map(this.overview?.flows.map(({ target, problem }) => [target, problem])),
  );
  // Plain arrays, since proxies of them would cost more than all the rest.
  #rates = new Rates();
  #source: EventSource | null = null;
  #failures = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #listeners = new Map<string, Set<Listener>>();
  #isWanted = false;

  constructor() {
    document.addEventListener("visibilitychange", () => this.#follow());
  }

  /** Throughput by interface. Who reads it is told of each snapshot that added to it. */
  get rates(): Rates {
    void this.overview;
    return this.#rates;
  }

  /** Begin to listen, for as long as the session lasts. */
  start(): void {
    this.#isWanted = true;
    this.#follow();
  }

  /** Stop listening, and forget. */
  stop(): void {
    this.#isWanted = false;
    this.#follow();
    this.overview = null;
    this.#rates.clear();
  }

  /** Call `listener` for each event of `topic`. Returns how to stop. */
  on(topic: string, listener: Listener): () => void {
    const listeners = this.#listeners.get(topic) ?? new Set();
    this.#listeners.set(topic, listeners.add(listener));
    return () => listeners.delete(listener);
  }

  /** Call `act` after each change of one of `subjects`, or of everything. Returns how to stop. */
  onChangeOf(subjects: readonly string[], act: () => void): () => void {
    return this.on("change", ({ subject }) => {
      if (subject === "everything" || subjects.includes(subject)) act();
    });
  }

  #follow(): void {
    const shouldListen = this.#isWanted && !document.hidden;
    if (shouldListen && this.#source === null) this.#open();
    if (!shouldListen) this.#close();
  }

  #open(): void {
    // A device that takes the connection and says nothing is as good as gone.
    this.#expectMore();
    const source = new EventSource(`${OPS}/events`);
    this.#source = source;
    source.onerror = () => this.#retry();
    source.onopen = () => {
      this.#expectMore();
      // What happened while nobody listened is not told again.
      this.#tell({ topic: "change", subject: "everything", text: "" });
    };
    source.addEventListener("overview", (event) => {
      this.#expectMore();
      this.#failures = 0;
      this.isConnected = true;
      const overview = JSON.parse(event.data as string) as Overview;
      this.#rates.take(overview);
      this.overview = overview;
    });
    source.onmessage = (event) => this.#tell(JSON.parse(event.data as string) as News);
  }

  #close(): void {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
    this.isConnected = false;
  }

  #expectMore(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#retry(), SILENCE_MS);
  }

  #retry(): void {
    this.#close();
    const wait = BACK_OFF_MS[Math.min(this.#failures, BACK_OFF_MS.length - 1)];
    this.#failures += 1;
    this.#timer = setTimeout(() => {
      // An EventSource does not tell a 401 from a dead device: this does.
      session.load(AbortSignal.timeout(ASKED_MS)).then(
        () => session.state === "open" && this.#follow(),
        () => this.#isWanted && this.#retry(),
      );
    }, wait);
  }

  #tell(news: News): void {
    for (const listener of this.#listeners.get(news.topic) ?? []) listener(news);
  }
}

export const live = new Live();

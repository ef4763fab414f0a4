/**
 * The device's live state: one stream of server-sent events for the page.
 *
 * The stream is closed while the page is hidden, and the collected data is bounded: a page that is
 * open for a month holds no more than one that is open for an hour.
 */

import { session } from "./session.svelte.ts";
import { OPS } from "./paths.ts";
import { Rates } from "./rates.ts";
import type { News, Overview } from "./types.ts";

const BACK_OFF_MS = [1000, 2000, 5000, 10_000, 30_000];
/** Milliseconds of silence after which the stream is lost; the device sends every 2 s. */
const SILENCE_MS = 20_000;
const ASKED_MS = 10_000;
/** Milliseconds since the last overview within which a stream is not dead. */
const FRESH_MS = 5000;

type Listener = (news: News) => void;

class Live {
  /** The latest snapshot. */
  overview = $state.raw<Overview | null>(null);
  isConnected = $state(false);
  /** The reason why clients are blocked, by the target of their rules; null if they are not. */
  problems = $derived(
    new Map(this.overview?.flows.map(({ target, problem_coded }) => [target, problem_coded])),
  );
  // Plain arrays: reactive proxies of them would cost more than everything else.
  #rates = new Rates();
  #source: EventSource | null = null;
  #failures = 0;
  #heardAt = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #listeners = new Map<string, Set<Listener>>();
  #isWanted = false;

  constructor() {
    document.addEventListener("visibilitychange", () => this.#follow());
    // After sleep, or in another network, the next attempt may be half a minute away, or a stream open that is dead.
    for (const woken of ["online", "pageshow"]) addEventListener(woken, () => this.#wake());
  }

  /** Throughput by interface. Reading it is reactive: it changes with each snapshot. */
  get rates(): Rates {
    void this.overview;
    return this.#rates;
  }

  /** Start listening. Call this when a session begins. */
  start(): void {
    this.#isWanted = true;
    this.#follow();
  }

  /** Stop listening, and discard the collected data. */
  stop(): void {
    this.#isWanted = false;
    this.#follow();
    this.overview = null;
    this.#rates.clear();
  }

  /** Call `listener` for each event of `topic`. Returns a function that stops this. */
  on(topic: string, listener: Listener): () => void {
    const listeners = this.#listeners.get(topic) ?? new Set();
    this.#listeners.set(topic, listeners.add(listener));
    return () => listeners.delete(listener);
  }

  /** Call `act` after changes of `subjects` or everything. Returns a function that stops this. */
  onChangeOf(subjects: readonly string[], act: () => void): () => void {
    // A refreshed list changes nodes.
    const all = subjects.includes("nodes") ? [...subjects, "subscriptions"] : subjects;
    return this.on("change", ({ subject }) => {
      if (subject === "everything" || all.includes(subject)) act();
    });
  }

  #follow(): void {
    const shouldListen = this.#isWanted && !document.hidden;
    if (shouldListen && this.#source === null) this.#open();
    if (!shouldListen) this.#close();
  }

  #wake(): void {
    if (this.isConnected && performance.now() - this.#heardAt < FRESH_MS) return;
    this.#close();
    this.#failures = 0;
    this.#follow();
  }

  #open(): void {
    // The device may accept the connection and then send nothing.
    this.#expectMore();
    const source = new EventSource(`${OPS}/events`);
    this.#source = source;
    source.onerror = () => this.#retry();
    source.onopen = () => {
      this.#expectMore();
      // Events that were missed while no stream was open are not repeated.
      this.#tell({ topic: "change", subject: "everything", text: "" });
    };
    source.addEventListener("overview", (event) => {
      this.#expectMore();
      this.#failures = 0;
      this.isConnected = true;
      this.#heardAt = performance.now();
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
      // This request finds out if the session has ended: an EventSource does not report a 401.
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

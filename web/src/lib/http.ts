/** Requests to the device that serves this page. */

import { takeEarly } from "./early.ts";
import type { Fault } from "./faults.ts";
import { OWN } from "./paths.ts";

/** What the device said no to, or what kept the request from reaching it (`status` 0). */
export class Refused extends Error {
  readonly status: number;
  /** The faults of the request, if the device refused it because of them. */
  readonly faults: readonly Fault[];

  constructor(message: string, status: number, faults: readonly Fault[] = []) {
    super(message);
    this.status = status;
    this.faults = faults;
  }
}

/** Values that another operator has set meanwhile, by the pointers of fields that are typed here. */
export class Overtaken extends Error {
  readonly theirs: Readonly<Record<string, unknown>>;

  constructor(theirs: Record<string, unknown>) {
    super("overtaken");
    this.theirs = theirs;
  }
}

type Method = "GET" | "POST" | "PUT" | "PATCH" | "DELETE";

let onLoggedOut = (): void => undefined;

/** What to do when the session turns out to be over. */
export function whenLoggedOut(act: () => void): void {
  onLoggedOut = act;
}

/** Fetch with the session's cookie. Raises `Refused` unless the answer is a success or a 304. */
export async function request(
  method: Method,
  path: string,
  init: { body?: BodyInit; type?: string; signal?: AbortSignal; etag?: string; ifMatch?: string } = {},
): Promise<Response> {
  const headers: Record<string, string> = { ...OWN };
  if (init.type) headers["content-type"] = init.type;
  if (init.etag) headers["if-none-match"] = init.etag;
  if (init.ifMatch) headers["if-match"] = init.ifMatch;
  let answer: Response;
  try {
    const early = method === "GET" ? takeEarly(path) : undefined;
    answer = await (early ??
      fetch(path, {
        method,
        headers,
        credentials: "same-origin",
        ...(init.body === undefined ? {} : { body: init.body }),
        ...(init.signal ? { signal: init.signal } : {}),
      }));
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new Refused("unreachable", 0);
  }
  if (answer.ok || answer.status === 304) return answer;
  if (answer.status === 401) onLoggedOut();
  throw await refusedBy(answer);
}

/** A JSON request. */
export async function call<T>(
  method: Method,
  path: string,
  body?: unknown,
  signal?: AbortSignal,
): Promise<T> {
  const answer = await request(method, path, {
    ...(body === undefined ? {} : { body: JSON.stringify(body), type: "application/json" }),
    ...(signal ? { signal } : {}),
  });
  return result(answer);
}

/** Hand the device a file of a media type. */
export async function upload<T>(
  method: Method,
  path: string,
  file: Blob,
  type: string,
): Promise<T> {
  return result(await request(method, path, { body: file, type }));
}

async function result<T>(answer: Response): Promise<T> {
  return (answer.status === 204 ? {} : await answer.json()) as T;
}

/** Read a problem document (RFC 9457), or another error answer. */
async function refusedBy(answer: Response): Promise<Refused> {
  try {
    const told = (await answer.json()) as { detail?: string; error?: string; errors?: Fault[] };
    const text = told.detail ?? told.error;
    if (text !== undefined) return new Refused(text, answer.status, told.errors);
  } catch {
    // Not JSON: the status has to say it.
  }
  return new Refused(`HTTP ${answer.status}`, answer.status);
}

/** Requests to the device that serves this page. */

import { takeEarly } from "./early.ts";
import { OWN } from "./paths.ts";

/** What the device said no to, or what kept the request from reaching it (`status` 0). */
export class Refused extends Error {
  readonly status: number;

  constructor(message: string, status: number) {
    super(message);
    this.status = status;
  }

  /** Its sentences by the field each names; what names none of `fields` stands under "". */
  byField(fields: readonly string[]): Record<string, string> {
    const found: Record<string, string> = {};
    let field = "";
    for (const part of this.message.split("; ")) {
      const named = /^[A-Za-z_]+/.exec(part)?.[0] ?? "";
      // A semicolon may also stand inside of a sentence: what follows belongs to its field.
      if (fields.includes(named)) field = named;
      else if (found[field] === undefined) field = "";
      found[field] = found[field] === undefined ? part : `${found[field]}; ${part}`;
    }
    return found;
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
  init: { body?: BodyInit; type?: string; signal?: AbortSignal; etag?: string } = {},
): Promise<Response> {
  const headers: Record<string, string> = { ...OWN };
  if (init.type) headers["content-type"] = init.type;
  if (init.etag) headers["if-none-match"] = init.etag;
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
  throw new Refused(await errorText(answer), answer.status);
}

/** A JSON request; also a 200 that holds an `error` instead of a result is `Refused`. */
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

/** Hand the device a file of a media type. `Refused` as `call` is. */
export async function upload<T>(
  method: Method,
  path: string,
  file: Blob,
  type: string,
): Promise<T> {
  return result(await request(method, path, { body: file, type }));
}

async function result<T>(answer: Response): Promise<T> {
  const told: unknown = answer.status === 204 ? {} : await answer.json();
  if (isFailure(told)) throw new Refused(told.error, answer.status);
  return told as T;
}

function isFailure(told: unknown): told is { error: string } {
  return (
    typeof told === "object" &&
    told !== null &&
    "error" in told &&
    typeof told.error === "string" &&
    !("msg" in told) &&
    !("delay" in told)
  );
}

async function errorText(answer: Response): Promise<string> {
  try {
    const told: unknown = await answer.json();
    if (isFailure(told)) return told.error;
  } catch {
    // Not JSON: the status has to say it.
  }
  return `HTTP ${answer.status}`;
}

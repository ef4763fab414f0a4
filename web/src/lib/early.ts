/** Requests that start before the page's script is loaded, to shorten the longest waits. */

import { LISTS, OWN, SESSION } from "./paths.ts";

const underWay = new Map<string, Promise<Response>>();

/** Request the session's state and, if the page at `hash` shows a list, that list. */
export function askEarly(hash: string): void {
  const page = /^#\/(\w+)/.exec(hash)?.[1] ?? "";
  for (const path of [SESSION, LISTS[page]]) {
    if (path) underWay.set(path, whole(path));
  }
}

/** Return the answer to an early request, but only once: a later call needs a current answer. */
export function takeEarly(path: string): Promise<Response> | undefined {
  const answer = underWay.get(path);
  underWay.delete(path);
  return answer;
}

/** Fetch an answer with its body: the transfer of a long unread body would stop half-way. */
async function whole(path: string): Promise<Response> {
  const answer = await fetch(path, { headers: OWN, credentials: "same-origin" });
  return new Response(await answer.arrayBuffer(), answer);
}

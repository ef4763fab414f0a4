/** What is asked for before the page's script has come, so that the longest waits end sooner. */

import { LISTS, OWN, SESSION } from "./paths.ts";

const underWay = new Map<string, Promise<Response>>();

/** Ask who is logged in, and for the list that is shown at `hash`, where one is. */
export function askEarly(hash: string): void {
  const page = /^#\/(\w+)/.exec(hash)?.[1] ?? "";
  for (const path of [SESSION, LISTS[page]]) {
    if (path) underWay.set(path, whole(path));
  }
}

/** The answer to what was asked early. Only once: who asks again wants to know how it is then. */
export function takeEarly(path: string): Promise<Response> | undefined {
  const answer = underWay.get(path);
  underWay.delete(path);
  return answer;
}

/** An answer with its body: unread, a long one would stop half-way. */
async function whole(path: string): Promise<Response> {
  const answer = await fetch(path, { headers: OWN, credentials: "same-origin" });
  return new Response(await answer.arrayBuffer(), answer);
}

/** Which page is shown. Routes live behind `#`, so that the device serves one document. */

import { unsaved } from "./unsaved.svelte.ts";

export const PAGES = [
  "overview",
  "rules",
  "nodes",
  "lines",
  "whitelist",
  "proxies",
  "why",
  "settings",
  "api",
] as const;
export type PageName = (typeof PAGES)[number];

interface Route {
  page: PageName;
  query: URLSearchParams;
}

let route = $state.raw<Route>(read());
let shown = location.hash;
let isAsking = false;
addEventListener("hashchange", () => void follow());

/** Go where the address leads, by a link or back in history, unless what was typed is to be kept. */
async function follow(): Promise<void> {
  if (isAsking) return;
  if (read().page !== route.page) {
    isAsking = true;
    const mayGo = await unsaved.mayGo();
    isAsking = false;
    if (!mayGo) {
      // The address that was come to is overwritten in history: where that stands in it, before or
      // after this page, is not told, and going the wrong way would be worse.
      history.replaceState(null, "", shown);
      return;
    }
  }
  route = read();
  shown = location.hash;
}

function read(): Route {
  const [path = "", query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const page = PAGES.find((name) => name === path) ?? "overview";
  return { page, query: new URLSearchParams(query) };
}

export function currentRoute(): Route {
  return route;
}

/** The link to a page, with what it should show. */
export function href(page: PageName, query: Record<string, string> = {}): string {
  const text = new URLSearchParams(query).toString();
  return `#/${page}${text ? `?${text}` : ""}`;
}

/** The page that is shown. Routes follow `#`, so that the device serves one document. */

import { unsaved } from "./unsaved.svelte.ts";

export const PAGES = [
  "overview",
  "rules",
  "devices",
  "nodes",
  "subscriptions",
  "groups",
  "lines",
  "whitelist",
  "proxies",
  "history",
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

/** Show the page of a link or a step in history, unless unsaved input is to be kept. */
async function follow(): Promise<void> {
  if (isAsking) return;
  if (read().page !== route.page) {
    isAsking = true;
    const mayGo = await unsaved.mayGo();
    isAsking = false;
    if (!mayGo) {
      // Overwrite the new entry in history. The browser does not report if that entry is before or
      // after this page's, and a step in the wrong direction would be worse.
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

/** The link to a page, with its query. */
export function href(page: PageName, query: Record<string, string> = {}): string {
  const text = new URLSearchParams(query).toString();
  return `#/${page}${text ? `?${text}` : ""}`;
}

"""The console's pages with 10,000 rules, 2,000 nodes and 10,000 devices: until each can be used.

Chromium runs at a client of the lab and opens each page over HTTPS, with an empty cache. Times are
taken inside the page, from the navigation's start until its rows or its other content are in the
document and nothing says any more that it is loading. Beside them stands the CPU time of the page's
main thread. The palette's times are from its key until its field has the focus, and from an input
until the frame that shows what is found. The list of devices is made up here, and answered within
Chromium: the time that the device takes for it is not in the figures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Page, Route

from bench.arguments import Arguments
from bench.changes import address
from bench.console import cpu, inspected
from bench.figures import keep, show, spread
from egressd_lab import netns
from egressd_lab.lab import Lab
from tests.web.chromium import chromium, context
from tests.web.site import URL, Site

ROUNDS = 5
RULES = 10_000
NODES = 2_000
DEVICES = 10_000
LISTS = ("rules", "nodes", "devices")
"""Pages that have rows."""
PAGES = (
    *LISTS,
    "overview",
    "groups",
    "lines",
    "whitelist",
    "proxies",
    "history",
    "why",
    "settings",
    "api",
)

USABLE = """
(hasRows) => new Promise((resolve) => {
  const look = () => {
    const main = document.querySelector("main");
    const rows = document.querySelectorAll("[role=row], main tbody tr").length;
    const isThere = main?.querySelector("h1") && !main.innerText.includes("Loading");
    if (isThere && (!hasRows || rows > 5)) resolve(performance.now());
    else requestAnimationFrame(look);
  };
  look();
})
"""
OPEN = """
() => new Promise((resolve) => {
  const begun = performance.now();
  dispatchEvent(new KeyboardEvent("keydown", {key: "k", ctrlKey: true, bubbles: true}));
  const look = () => document.activeElement?.role === "combobox"
    ? resolve(performance.now() - begun) : requestAnimationFrame(look);
  look();
})
"""
FIND = """
(typed) => new Promise((resolve) => {
  const input = document.querySelector("dialog [role=combobox]");
  const begun = performance.now();
  input.value = typed;
  input.dispatchEvent(new Event("input", {bubbles: true}));
  requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - begun)));
})
"""
WORDS = ("1", "10.80", "10.80.7.9", "seat 77", "node-19", "tablet 9", "no such thing", "")


def fill(lab: Lab) -> None:
    """Give the device its rules and nodes."""
    nodes = "\n".join(f"203.0.{n // 250}.{n % 250 + 1},1080,u,p,node-{n}" for n in range(NODES))
    lab.api.post("/nodes/import", {"type": "socks5", "text": nodes, "group": "pool"})
    targets = ("DIRECT", "REJECT", "Interface:wan1", "Interface:wan2")
    rules = "\n".join(f"{address(n)},{targets[n % 4]},seat {n}" for n in range(RULES))
    lab.api.post("/rules/import", {"text": rules, "replace": True})


def device(number: int) -> Mapping[str, Any]:
    """Return a device as the API lists it; every third one has no rule."""
    seen = "2026-11-20T22:58:40Z"
    return {
        "mac": f"02:00:00:00:{number // 256:02x}:{number % 256:02x}",
        "name": f"tablet {number}",
        "hostname": "",
        "vendor": "",
        "comment": "",
        "is_random_mac": True,
        "addresses": [{"ip": address(number), "interface": "lan0", "last_seen": seen}],
        "first_seen": seen,
        "last_seen": seen,
        "is_online": True,
        "rule_id": number + 1 if number % 3 else None,
        "covered_by": "",
        "is_bound": False,
        "tried": [],
    }


EVERY: Final = [device(number) for number in range(DEVICES)]


def answer(route: Route) -> None:
    """Answer a request for the devices."""
    asked = parse_qs(urlsplit(route.request.url).query)
    words = asked.get("search", [""])[0].split()
    found = [each for each in EVERY if all(word in json.dumps(each) for word in words)]
    without = sum(each["rule_id"] is None for each in found)
    shown = found[: int(asked["limit"][0])]
    body = {"data": shown, "total": len(found), "without_rule": without}
    route.fulfill(content_type="application/json", body=json.dumps(body))


@contextmanager
def opened(site: Site, name: str) -> Iterator[Page]:
    """Yield a page of the console that is opened with an empty cache."""
    made = context(site.browser, state=site.state)
    page = made.new_page()
    page.route("**/ops/devices?*", answer)
    page.goto(f"{URL}#/{name}", wait_until="commit")
    yield page
    made.close()


def pages(site: Site, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds until each page can be used, and of CPU time until then."""
    found: dict[str, list[float]] = {}
    for name in PAGES * rounds:
        with opened(site, name) as page:
            cdp = inspected(page)
            took = float(page.evaluate(USABLE, name in LISTS))
            found.setdefault(f"{name}, ms", []).append(took)
            found.setdefault(f"{name}, ms of CPU", []).append(cpu(cdp))
    return found


def palette(site: Site, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds until the palette is open, and until it shows what is found."""
    opening, finding = [], []
    for _ in range(rounds):
        with opened(site, "overview") as page:
            page.evaluate(USABLE, False)
            opening.append(float(page.evaluate(OPEN)))
            page.evaluate(FIND, "seat")
            page.get_by_role("option", name="seat 9999").or_(
                page.get_by_text("The first of")
            ).wait_for()
            finding += [float(page.evaluate(FIND, typed)) for typed in WORDS]
    return {"palette, ms": opening, "finding, ms": finding}


def main() -> None:
    """Measure, show the figures and keep them."""
    arguments = Arguments("pages", __doc__)
    arguments.number("--rounds", ROUNDS, "loads of each page")
    given = arguments.read()
    with Lab() as lab:
        lab.start_egressd()
        fill(lab)
        with chromium(netns.namespace(lab.name, "client3")) as browser:
            site = Site(lab, browser)
            site.log_in()
            times = pages(site, given.rounds) | palette(site, given.rounds)
    figures = {name: spread(samples) for name, samples in times.items()}
    show(f"The console with {RULES} rules, {NODES} nodes and {DEVICES} devices", figures)
    keep("pages", figures, given.json)


if __name__ == "__main__":
    main()

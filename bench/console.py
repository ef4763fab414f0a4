"""The console's page with 10,000 rules: first rows, filter, sort, scrolling, and memory over time.

Chromium runs at a client of the lab and opens the page over HTTPS, with an empty cache. Times are
taken inside the page: from the navigation's start until rows are in the document, and from an input
until the frame that shows its result. Beside them stands the CPU time of the page's main thread,
which is independent of other work on the machine. Then the page is left open under live
updates, while rules change; its heap is measured after a full collection.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from playwright.sync_api import CDPSession, Page

from bench.api import RULES
from bench.arguments import Arguments
from bench.changes import address
from bench.figures import keep, show, spread
from egressd_lab import netns
from egressd_lab.lab import Lab
from tests.web.chromium import chromium, context
from tests.web.site import URL, Site

ROUNDS = 7
MINUTES = 10.0
SAMPLE_S = 20.0
CHANGES_PER_S = 5
FILTERS = ("1", "10.80.7", "seat 77", "direct", "reject 9", "no such thing", "")

FIRST_ROWS = """
new Promise((resolve) => {
  const look = () => document.querySelectorAll("[role=row]").length > 5
    ? resolve(performance.now()) : requestAnimationFrame(look);
  look();
})
"""
# Milliseconds from an input until the frame after the one that shows its result.
FILTER = """
(typed) => new Promise((resolve) => {
  const input = document.querySelector("input[type=search]");
  const begun = performance.now();
  input.value = typed;
  input.dispatchEvent(new Event("input", {bubbles: true}));
  requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - begun)));
})
"""
SORT = """
(column) => new Promise((resolve) => {
  const button = document.querySelectorAll("[role=columnheader] button")[column];
  const begun = performance.now();
  button.click();
  requestAnimationFrame(() => requestAnimationFrame(() => resolve(performance.now() - begun)));
})
"""
# The frames of a scroll through all rows, in milliseconds.
SCROLL = """
() => new Promise((resolve) => {
  const grid = document.querySelector("[role=grid]");
  const frames = [];
  let before = performance.now();
  const step = () => {
    const now = performance.now();
    frames.push(now - before);
    before = now;
    if (frames.length === 120) return resolve(frames);
    grid.scrollTop = (grid.scrollHeight * frames.length) / 120;
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})
"""

Figures = dict[str, float | str]


def cpu(cdp: CDPSession) -> float:
    """Return the milliseconds of CPU time that the page's main thread has used."""
    told: dict[str, Any] = cdp.send("Performance.getMetrics")
    return 1000 * float(next(m["value"] for m in told["metrics"] if m["name"] == "ThreadTime"))


def inspected(page: Page) -> CDPSession:
    """Return a session for `cpu`."""
    cdp = page.context.new_cdp_session(page)
    cdp.send("Performance.enable", {"timeDomain": "threadTicks"})
    return cdp


def first_rows(site: Site, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds from a navigation to rows, each time with an empty cache."""
    samples, used = [], []
    for _ in range(rounds):
        made = context(site.browser, state=site.state)
        page = made.new_page()
        cdp = inspected(page)
        page.goto(URL + "#/rules", wait_until="commit")
        samples.append(float(page.evaluate(FIRST_ROWS)))
        used.append(cpu(cdp))
        made.close()
    return {"first rows, ms": samples, "first rows, ms of CPU": used}


def reactions(page: Page, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds from an input to its result on the page."""
    cdp = inspected(page)
    filters, used = [], []
    for typed in FILTERS * rounds:
        before = cpu(cdp)
        filters.append(float(page.evaluate(FILTER, typed)))
        used.append(cpu(cdp) - before)
    sorts = [float(page.evaluate(SORT, column)) for _ in range(rounds) for column in (0, 1, 2)]
    frames = [float(one) for _ in range(3) for one in page.evaluate(SCROLL)]
    return {
        "filter, ms": filters,
        "filter, ms of CPU": used,
        "sort, ms": sorts,
        "frame while scrolling, ms": frames,
    }


def heap(cdp: CDPSession) -> float:
    """Return the MiB of the page's heap that are in use after a full collection."""
    cdp.send("HeapProfiler.collectGarbage")
    usage: dict[str, Any] = cdp.send("Runtime.getHeapUsage")
    return float(usage["usedSize"]) / 2**20


def memory(site: Site, page: Page, minutes: float) -> list[float]:
    """Return the heap over minutes of changes, half of them on the rules, half on the overview."""
    done = threading.Event()

    def change() -> None:
        number = 0
        while not done.wait(1 / CHANGES_PER_S):
            ip = address(number % RULES)
            body = {"ips": [ip], "update_upload": True, "upload_limit_kbps": 1000 + number}
            site.lab.api.patch("/rules/batch/limits", body)
            number += 1

    cdp = page.context.new_cdp_session(page)
    thread = threading.Thread(target=change)
    samples = []
    for path in ("rules", "overview"):
        page.evaluate(f"location.hash = '#/{path}'")
        page.wait_for_timeout(5000)
        if path == "rules":
            thread.start()
        end = time.monotonic() + minutes * 30
        while time.monotonic() < end:
            page.wait_for_timeout(SAMPLE_S * 1000)
            samples.append(heap(cdp))
    done.set()
    thread.join()
    return samples


def main() -> None:
    """Measure, show the figures and keep them."""
    arguments = Arguments("console", __doc__)
    arguments.number("--rounds", ROUNDS, "loads of the page, and trials of its filters and sorts")
    arguments.number("--minutes", MINUTES, "minutes for which the page is left open")
    given = arguments.read()
    targets = ("DIRECT", "REJECT", "Interface:wan1", "Interface:wan2")
    rows = [f"{address(n)},{targets[n % 4]},seat {n}" for n in range(RULES)]
    with Lab() as lab:
        lab.start_egressd()
        lab.api.post("/rules/import", {"text": "\n".join(rows), "replace": True})
        with chromium(netns.namespace(lab.name, "client3")) as browser:
            site = Site(lab, browser)
            site.log_in()
            times = first_rows(site, given.rounds)
            with site.visit("#/rules") as page:
                page.evaluate(FIRST_ROWS)
                times |= reactions(page, given.rounds)
                heaps = memory(site, page, given.minutes)
    figures: dict[str, Figures] = {name: {**spread(samples)} for name, samples in times.items()}
    half = len(heaps) // 2
    for path, samples in (("rules", heaps[:half]), ("overview", heaps[half:])):
        figures[f"heap on {path}, MiB"] = {
            **spread(samples),
            "first": samples[0],
            "last": samples[-1],
        }
    show(f"The console with {RULES} rules", figures)
    keep("console", figures, given.json)


if __name__ == "__main__":
    main()

"""The overview page, against a real device."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from egressd_lab.client import Client
from egressd_lab.spec import WEB_SERVERS
from tests.web.axe import serious
from tests.web.site import Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]

SEEN_AT = f"http://{WEB_SERVERS[0]}/"


def test_the_overview_shows_targets_and_blocked_clients(served: Site) -> None:
    with served.visit("#/overview") as page:
        blocked = page.get_by_role("region", name="Problems")
        expect(blocked).to_contain_text("wan9")
        page.get_by_role("link", name="ss 1").click()
        expect(page.get_by_role("heading", name="Rules")).to_be_visible()
        expect(page.get_by_label("Filter")).to_have_value("target:ss")
        page.go_back()
        served.lab.api.patch(
            "/rules/batch/status", {"ips": [served.lab.client(2).address], "is_enabled": False}
        )
        expect(blocked).to_contain_text("There are no known problems.")
        expect(page.get_by_role("region", name="Recent changes")).to_contain_text("disabled")


def test_traffic_is_shown_by_rule_and_in_the_chart(served: Site) -> None:
    client = served.lab.client(1)
    with downloading(client), served.visit("#/overview") as page:
        flows = page.get_by_role("region", name="Traffic flow")
        expect(flows.get_by_text("The width of a ribbon shows the current traffic")).to_be_visible(
            timeout=20_000
        )
        expect(flows.get_by_role("link", name="ss 1")).to_contain_text("bit/s")
        page.evaluate("location.hash = '#/rules'")
        row = page.get_by_role("row").filter(has_text=client.address)
        expect(row).to_contain_text(re.compile(r"↑ \d.* [KM]iB ↓ \d.* [KM]iB"), timeout=20_000)


def test_two_hundred_targets_are_all_counted(tidy: Site) -> None:
    rows = [f"10.78.{n // 250}.{n % 250},Interface:gone{n}" for n in range(205)]
    tidy.lab.api.post("/rules/import", {"text": "\n".join(rows)})
    with tidy.visit("#/overview") as page:
        blocked = page.get_by_role("region", name="Problems")
        expect(blocked.get_by_role("listitem")).to_have_count(20)
        expect(blocked).to_contain_text(re.compile(r"there are \d+ reasons"))
        counts = tidy.lab.api.ask("GET", "/ops/overview").body["counts"]
        assert counts["failing_targets"] >= 205
        expect(blocked.locator("header")).to_contain_text(str(counts["failing_targets"]))
        flows = page.get_by_role("region", name="Traffic flow")
        expect(flows.get_by_text(str(counts["enabled_rules"]), exact=True)).to_be_visible()
        expect(flows).to_contain_text(f"and {counts['targets'] - 10} more targets")


def streamed(page: Page, overviews: list[dict[str, Any]]) -> None:
    """Show the overview page with these overviews in place of the device's."""
    stream = "".join(f"event: overview\ndata: {json.dumps(one)}\n\n" for one in overviews)
    page.route(
        "**/ops/events",
        lambda route: route.fulfill(content_type="text/event-stream", body=stream),
    )
    page.reload()
    page.evaluate("location.hash = '#/overview'")


def test_the_boxes_of_a_site_are_shown_with_their_roles(served: Site) -> None:
    first = {
        "name": "gw1",
        "is_this": True,
        "version": "0.2.0",
        "revision": 12,
        "lag": 0,
        "role": "active",
        "role_since": "2026-11-20T22:58:40Z",
        "is_beating": True,
        "is_shut_out": False,
        "needs_lease": True,
        "blocked": ["hk"],
    }
    behind = {"name": "gw2", "is_this": False, "role": "standby", "lag": 3, "blocked": []}
    silent = {"name": "gw3", "is_this": False, "role": "", "role_since": None, "is_beating": False}
    boxes = [first, {**first, **behind}, {**first, **silent, "blocked": []}]
    with served.visit("#/settings") as page:
        page.route("**/ops/members", lambda route: route.fulfill(json={"data": boxes}))
        page.evaluate("location.hash = '#/overview'")
        rows = page.get_by_role("region", name="Boxes of the site").get_by_role("row")
        expect(rows).to_have_count(4)
        for row, texts in (
            (1, ["gw1", "this box", "active", "since", "in step", "blocked there: hk", "0.2.0"]),
            (2, ["gw2", "on standby", "3 changes behind"]),
            (3, ["gw3", "silent"]),
        ):
            for text in texts:
                expect(rows.nth(row)).to_contain_text(text)
        assert serious(page) == []


def test_a_box_of_its_own_shows_no_boxes(served: Site) -> None:
    with served.visit("#/overview") as page, page.expect_response("**/ops/members"):
        page.reload()
    with served.visit("#/overview") as page:
        expect(page.get_by_role("heading", name="Problems")).to_be_visible()
        expect(page.get_by_role("region", name="Boxes of the site")).to_have_count(0)


def test_the_busiest_of_many_lines_are_drawn(served: Site) -> None:
    overview: dict[str, Any] = served.lab.api.ask("GET", "/ops/overview").body
    wan = next(one for one in overview["interfaces"] if one["role"] == "wan")

    def snapshot(second: int) -> dict[str, Any]:
        lines = [
            {"name": f"ppp{n}", "role": "line", "received": n * second * 125_000, "sent": 0}
            for n in range(12)
        ]
        at = f"2026-11-20T22:58:{second:02}.000Z"
        return overview | {"at": at, "interfaces": [wan | line for line in lines]}

    with served.visit("#/settings") as page:
        streamed(page, [snapshot(second) for second in (10, 12, 14)])
        chart = page.get_by_role("region", name="Throughput by interface")
        shown = chart.get_by_role("listitem")
        expect(shown).to_have_count(9)
        expect(shown.first).to_contain_text("ppp4")
        expect(shown.last).to_contain_text("4 others")
        # Of ppp0 to ppp3.
        expect(shown.last).to_contain_text("6.0 Mbit/s")
        expect(chart.locator("canvas")).to_be_visible()


_RECORD_TEXTS = """globalThis.texts = [];
const { clearRect, fillText } = CanvasRenderingContext2D.prototype;
CanvasRenderingContext2D.prototype.clearRect = function (...area) {
  globalThis.texts = [];
  return clearRect.call(this, ...area);
};
CanvasRenderingContext2D.prototype.fillText = function (text, ...place) {
  globalThis.texts.push(text);
  return fillText.call(this, text, ...place);
};"""


"""A script that keeps the texts of a canvas since it was cleared."""


@pytest.mark.parametrize(("minutes", "label"), [(1, r"^\d+:\d\d:\d\d"), (5, r"^\d+:\d\d .M$")])
def test_no_two_labels_of_the_charts_time_axis_are_equal(
    served: Site, minutes: int, label: str
) -> None:
    """The labels were hours and minutes: in a chart of one minute several were the same."""
    overview = served.lab.api.ask("GET", "/ops/overview").body
    start = datetime(2026, 11, 20, 22, 58, tzinfo=UTC)
    moments = [start + timedelta(seconds=second) for second in range(0, 60 * minutes + 4, 2)]
    with served.visit("#/settings") as page:
        page.add_init_script(_RECORD_TEXTS)
        streamed(page, [overview | {"at": moment.isoformat()} for moment in moments])
        found = page.wait_for_function(
            "label => ((labels) => labels.length > 2 && labels)"
            "(texts.filter((text) => text.match(label)))",
            arg=label,
        )
        labels = found.json_value()
    assert len(set(labels)) == len(labels)


def test_every_figure_is_within_its_column(served: Site) -> None:
    """In a window of 1,010 pixels a long uptime reached beyond the edge of its card."""
    overview = served.lab.api.ask("GET", "/ops/overview").body
    with served.visit("#/settings", width=1010) as page:
        streamed(page, [overview | {"uptime_s": 86_399}])
        figures = page.locator(".figures div")
        expect(figures.last).to_contain_text("23 h 59 min")
        assert figures.evaluate_all("all => all.every((one) => one.scrollWidth <= one.clientWidth)")


_CUT_OFF = """() => [...document.querySelectorAll("main svg text")].filter((text) => {
  const svg = text.ownerSVGElement.getBoundingClientRect();
  const own = text.getBoundingClientRect();
  return own.left < svg.left - 1 || own.right > svg.right + 1;
}).map((text) => text.textContent)"""


"""A script that finds the texts of pictures that reach over an edge."""


@pytest.mark.parametrize("width", [1280, 390])
def test_no_text_of_the_flow_picture_is_cut_off(served: Site, width: int) -> None:
    """The text "10,019 clients" was seen in part only."""
    overview = served.lab.api.ask("GET", "/ops/overview").body
    flow = overview["flows"][0] | {"problem": "", "problem_coded": None, "egresses": ["wan1"]}
    many = [flow | {"target": "Group_" + "w" * 40, "clients": 10_019, "download_bps": 999_900_000}]
    with served.visit("#/settings", width=width) as page:
        streamed(page, [overview | {"flows": many}])
        picture = page.get_by_role("figure").first
        expect(picture.get_by_text("10,019").first).to_be_visible()
        assert page.evaluate(_CUT_OFF) == []


def test_older_changes_are_shown_on_request(tidy: Site) -> None:
    for n in range(13):
        body = {"domains": f"older{n}.test", "ips": "", "node": "DIRECT"}
        tidy.lab.api.put("/whitelist", body)
    with tidy.visit("#/overview") as page:
        changes = page.get_by_role("region", name="Recent changes").get_by_role("listitem")
        expect(changes).to_have_count(12)
        held: list[Route] = []

        def hold(route: Route) -> None:
            held.append(route)

        page.route("**/ops/changes?limit=120", hold)
        more = page.get_by_role("button", name="Show more")
        with page.expect_request("**/ops/changes?limit=120"):
            more.click()
        expect(more).to_be_disabled()
        expect(more).to_be_focused()
        held[0].continue_()
        expect(changes.nth(13)).to_be_visible()


def test_the_reason_of_a_blocked_rule_is_shown(tidy: Site) -> None:
    tidy.lab.api.post("/rules", {"ip": "10.77.7.3", "target_node": "Interface:wan9"})
    why = "there is no interface wan9"
    for width in (1280, 390):
        with tidy.visit("#/rules?q=10.77.7.3", width=width) as page:
            row = page.get_by_role("row").filter(has_text="10.77.7.3")
            expect(row).to_contain_text(why)
            if width == 390:
                expect(row.locator(".under")).to_contain_text(why)


@contextmanager
def downloading(client: Client) -> Iterator[None]:
    """Download some Mbit/s for as long as the block takes."""
    done = Event()

    def download() -> None:
        while not done.wait(0.2):
            assert client.http(f"{SEEN_AT}bytes/200000").ok

    with ThreadPoolExecutor() as threads:
        running = threads.submit(download)
        try:
            yield
        finally:
            done.set()
        running.result()

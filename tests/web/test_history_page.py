"""The page of the history, and the last day in other pages, against a real device."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Route, expect

from egressd.model.times import UTC_FORMAT
from tests.web.axe import serious
from tests.web.chromium import screenshot
from tests.web.site import Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]


def test_history_leads_from_the_largest_to_one_over_time(served: Site) -> None:
    traffic = {"upload_bytes": 1_230_000, "download_bytes": 45_600_000}
    now = datetime.now(UTC).replace(microsecond=0)
    window = {
        "from": (now - timedelta(days=1)).strftime(UTC_FORMAT),
        "to": now.strftime(UTC_FORMAT),
    }

    def top(route: Route) -> None:
        by = re.search("by=([a-z]+)", route.request.url)
        assert by is not None
        key = {"client": "10.0.0.9", "target": "Group_hk", "interface": "wan1"}[by[1]]
        route.fulfill(json={**window, "by": by[1], "data": [{"key": key, **traffic}]})

    def one(route: Route) -> None:
        at = now.replace(minute=0, second=0)
        slots = [
            {"at": (at - timedelta(hours=hours)).strftime(UTC_FORMAT), **traffic}
            for hours in (3, 2, 1)
        ]
        answer = {**window, "by": "client", "key": "10.0.0.9", "step": "1h", "data": slots}
        route.fulfill(json=answer)

    with served.visit("#/history") as page:
        page.route("**/ops/history/top?*", top)
        page.route("**/ops/history/traffic?*", one)
        page.get_by_role("link", name="Targets").click()
        expect(page.get_by_role("row").filter(has_text="Group_hk")).to_contain_text("43.5 MiB")
        page.get_by_role("link", name="Clients").click()
        page.get_by_role("link", name="10.0.0.9").click()
        expect(page.get_by_role("heading", name="10.0.0.9")).to_be_visible()
        expect(page.get_by_text("↓ 130 MiB ↑ 3.5 MiB")).to_be_visible()
        chart = page.get_by_role("img", name="10.0.0.9: received above the axis, sent below it")
        expect(chart.locator("canvas")).to_be_visible()
        page.get_by_role("link", name="Week").click()
        expect(page).to_have_url(re.compile("span=week.*key=10.0.0.9"))
        screenshot(page, "history")
        with page.expect_download() as downloading:
            page.get_by_role("button", name="Export CSV").click()
        lines = Path(downloading.value.path()).read_text("utf-8-sig").splitlines()
        assert lines[0] == "at,upload_bytes,download_bytes"
        assert len(lines) == 4
        assert lines[1].endswith("Z,1230000,45600000")


def test_nodes_and_lines_show_their_last_day(tidy: Site) -> None:
    api = tidy.lab.api
    api.post("/nodes", tidy.lab.nodes["http"].draft() | {"name": "past-steady"})
    api.post("/nodes", tidy.lab.nodes["http"].draft() | {"name": "past-unknown"})
    line = {"type": "l2tp", "server": "192.0.2.99", "username": "u", "password": "p"}
    for name in ("l2tp_e", "l2tp_f"):
        api.post("/vpn-lines", {**line, "name": name})
    now = datetime.now(UTC).replace(microsecond=0)
    begun = now - timedelta(days=1)
    middle = (now - timedelta(hours=12)).strftime(UTC_FORMAT)
    window = {"from": begun.strftime(UTC_FORMAT), "to": now.strftime(UTC_FORMAT)}
    slots = [(begun + timedelta(hours=hour)).strftime(UTC_FORMAT) for hour in range(24)]
    delays = [None, *range(80, 102), None]
    row = {"name": "past-steady", "delays": delays, "up_s": 86_220, "down_s": 180}
    nodes = {**window, "step": "1h", "slots": slots, "data": [row]}
    states = [
        {"from": window["from"], "to": middle, "state": "up"},
        {"from": middle, "to": window["to"], "state": "down"},
    ]
    known = {"type": "l2tp", "name": "l2tp_e", "up_s": 43_200, "down_s": 43_200}
    lines = {**window, "data": [{**known, "states": states}]}
    with tidy.visit("#/overview") as page:
        page.route("**/ops/history/nodes", lambda route: route.fulfill(json=nodes))
        page.route("**/ops/history/lines", lambda route: route.fulfill(json=lines))
        page.get_by_role("link", name="Nodes").click()
        page.get_by_label("Filter").fill("past-")  # other tests leave many nodes
        shown = page.get_by_role("row").filter(has_text="past-steady")
        picture = shown.get_by_role("img", name="Last day: Delay: 80 to 101 ms down for 3 min")
        expect(picture.locator("path")).to_have_attribute("d", re.compile("^M1 16L2 "))
        expect(
            page.get_by_role("row").filter(has_text="past-unknown").get_by_role("img")
        ).to_have_count(0)
        assert serious(page) == []
        screenshot(page, "nodes-past")
        page.get_by_role("link", name="VPN lines").click()
        text = "Last day: up for 50 % of the recorded time, down 1 time"
        ribbon = page.get_by_role("row").filter(has_text="l2tp_e").get_by_role("img", name=text)
        parts = ribbon.locator("i")
        expect(parts).to_have_count(2)
        expect(parts.first).to_have_class(re.compile("up"))
        widths = [part.evaluate("one => one.offsetWidth") for part in parts.all()]
        assert abs(widths[0] - widths[1]) < 2
        expect(page.get_by_role("row").filter(has_text="l2tp_f").get_by_role("img")).to_have_count(
            0
        )
        assert serious(page) == []
        screenshot(page, "lines-past")


def test_a_targets_history_has_its_states(served: Site) -> None:
    """A group's page has the nodes that it has elected, a node's page the node's delays."""
    now = datetime.now(UTC).replace(microsecond=0)
    middle = (now - timedelta(hours=6)).strftime(UTC_FORMAT)
    window = {
        "from": (now - timedelta(days=1)).strftime(UTC_FORMAT),
        "to": now.strftime(UTC_FORMAT),
    }
    first = {"from": window["from"], "to": middle, "state": "up", "node": "hk-01"}
    states = [first, {"from": middle, "to": window["to"], "state": "down", "node": "hk-02"}]
    known = {"up_s": 64_800, "down_s": 21_600}
    group = {**window, "name": "h/k", **known, "states": states}
    slot = {"at": middle, "delay_ms": 87, **known}
    part = [{"from": one["from"], "to": one["to"], "state": one["state"]} for one in states]
    node = {**window, "name": "hk-01", "step": "1h", "data": [slot, slot], "states": part}

    def traffic(route: Route) -> None:
        key = "hk-01" if "hk-01" in route.request.url else "Group_h/k"
        route.fulfill(json={**window, "by": "target", "key": key, "step": "1h", "data": []})

    with served.visit("#/overview") as page:
        page.route("**/ops/history/traffic?*", traffic)
        page.route("**/ops/history/groups/h%2Fk?*", lambda route: route.fulfill(json=group))
        page.route("**/ops/history/nodes/hk-01?*", lambda route: route.fulfill(json=node))
        page.evaluate("location.hash = '#/history?by=target&key=Group_h%2Fk'")
        text = "up for 75 % of the recorded time, down 1 time"
        expect(page.get_by_role("img", name=text).locator("i")).to_have_count(2)
        expect(page.get_by_role("listitem").filter(has_text="hk-0")).to_contain_text(
            ["hk-02", "hk-01"]
        )
        assert serious(page) == []
        screenshot(page, "history-group")
        page.evaluate("location.hash = '#/history?by=target&key=hk-01'")
        expect(page.get_by_role("img", name="Delay: 87 to 87 ms")).to_be_visible()
        expect(page.get_by_role("img", name=text)).to_be_visible()


def test_the_lists_of_the_last_day_are_those_of_the_box(served: Site) -> None:
    """They are loaded from the recorder itself, whatever it has seen so far."""
    with served.visit("#/overview") as page:
        for link, path in (("Nodes", "nodes"), ("VPN lines", "lines")):
            with page.expect_response(f"**/ops/history/{path}") as answered:
                page.get_by_role("link", name=link).click()
            assert answered.value.status == 200


def test_a_rule_leads_to_its_clients_history(served: Site) -> None:
    client = served.lab.client(1)
    with served.visit("#/rules") as page:
        page.get_by_role("link", name=f"History of {client.address}").click()
        expect(page).to_have_url(re.compile(f"#/history.key={re.escape(client.address)}"))
        expect(page.get_by_role("heading", level=1)).to_have_text("History")

"""The main path of every page except the rules page, against a real device."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Locator, Page, Response, Route, expect

from egressd.model.faults import fault
from egressd.model.problem import problem
from egressd.model.times import UTC_FORMAT
from egressd_lab.client import Client
from egressd_lab.spec import WEB_SERVERS
from tests.support.device import eventually
from tests.support.dhcp import request
from tests.web.axe import serious
from tests.web.chromium import screenshot
from tests.web.site import Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]

SEEN_AT = f"http://{WEB_SERVERS[0]}/"
DELAY_URL = f"http://{WEB_SERVERS[2]}/generate_204"


@pytest.fixture(scope="module")
def served(site: Site) -> Site:
    """Return a site with nodes, and a client that uses one of them."""
    lab = site.lab
    with site.visit("#/settings") as page:
        # The lab has no such host as the device's default.
        page.get_by_label("URL for delay tests").fill(DELAY_URL)
        page.get_by_role("region", name="Routing").get_by_role("button", name="Save").click()
        expect(page.get_by_role("status").filter(has_text="settings")).to_be_visible()
    for kind in ("socks5", "ss"):
        lab.api.post("/nodes", lab.nodes[kind].draft("pool"))
    lab.api.post("/rules", {"ip": lab.client(1).address, "target_node": "ss"})
    lab.api.post("/rules", {"ip": lab.client(2).address, "target_node": "Interface:wan9"})
    return site


@pytest.fixture
def tidy(served: Site) -> Iterator[Site]:
    """Yield the same site, for a test that leaves nothing behind."""
    with served.kept():
        yield served


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


def test_the_palette_finds_and_leads_there_by_keys_alone(tidy: Site) -> None:
    rule = {"ip": "10.77.7.8", "target_node": "REJECT", "comment": "kitchen radio"}
    tidy.lab.api.post("/rules", rule)
    with tidy.visit("#/overview") as page:
        field = page.get_by_role("combobox", name="Find or do")
        chosen = page.get_by_role("option", selected=True)
        # The key means nothing before the page is there.
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        page.keyboard.press("Control+k")
        expect(field).to_be_focused()
        assert serious(page) == []
        page.keyboard.type("radio kitch")
        expect(chosen).to_contain_text("10.77.7.8")
        expect(field).to_have_attribute("aria-activedescendant", chosen.get_attribute("id") or "")
        screenshot(page, "palette")
        page.keyboard.press("Enter")
        expect(field).to_have_count(0)
        expect(page.get_by_label("Filter")).to_have_value("ip:10.77.7.8")
        expect(page.get_by_role("row").filter(has_text="kitchen radio")).to_be_visible()

        # An address without a rule can be asked about, and given one.
        page.keyboard.press("Control+k")
        expect(field).to_be_focused()
        page.keyboard.type("10.77.7.9")
        expect(chosen).to_contain_text("Explain the path of 10.77.7.9")
        page.keyboard.press("ArrowUp")
        expect(chosen).to_contain_text("Add a rule for 10.77.7.9")
        page.keyboard.press("Enter")
        form = page.get_by_role("form", name="Add a rule")
        expect(form.get_by_label("Client")).to_have_value("10.77.7.9")
        page.keyboard.press("Control+k")
        expect(field).to_be_focused()
        page.keyboard.press("Escape")
        expect(field).to_have_count(0)
        expect(form.get_by_label("Client")).to_be_focused()


def test_the_palette_opens_by_touch_in_chinese(served: Site) -> None:
    with served.visit("#/overview", width=390, theme="dark", language="zh-CN") as page:
        page.get_by_role("button", name="查找与操作").locator("visible=true").tap()
        page.get_by_role("combobox", name="查找与操作").fill("节点")
        expect(page.get_by_role("option").first).to_contain_text("节点")
        assert serious(page) == []
        screenshot(page, "palette-390")
        page.get_by_role("option").first.tap()
        expect(page.get_by_role("heading", level=1)).to_have_text("节点")


def test_the_menu_closes_on_a_phone(served: Site) -> None:
    with served.visit("#/rules", width=390) as page:
        menu, add = (page.get_by_role("button", name=name) for name in ("Menu", "Add a rule"))
        menu.click()
        # Turned to landscape, the screen has room for both.
        page.set_viewport_size({"width": 844, "height": 390})
        add.click()
        page.get_by_role("form").get_by_role("button", name="Cancel").click()
        page.set_viewport_size({"width": 390, "height": 844})
        menu.click()
        page.get_by_role("navigation").get_by_role("link", name="Rules").click()
        expect(menu).to_have_attribute("aria-expanded", "false")
        add.click()


def test_an_unresponsive_device_is_polled_again(served: Site) -> None:
    asked: list[Route] = []

    def hold(route: Route) -> None:
        asked.append(route)

    with served.visit("#/settings") as page:
        settings = page.url
        # Requests of this page must not be counted as the next one's.
        page.goto("about:blank")
        # Ten seconds pass in half a second.
        page.add_init_script(
            "const timeout = AbortSignal.timeout.bind(AbortSignal);"
            "AbortSignal.timeout = (ms) => timeout(ms / 20)"
        )
        page.clock.install()
        page.route("**/ops/events", hold)
        with page.expect_request("**/ops/events"):
            page.goto(settings)
        page.route("**/console/session", hold)
        failed: list[str] = []
        page.on("requestfailed", lambda request: failed.append(request.url))
        # The page may set its timer later than it asks for the events.
        pass_time(page, lambda: any(url.endswith("/console/session") for url in failed))
        page.unroute("**/console/session")
        before = len(asked)
        pass_time(
            page, lambda: any(route.request.url.endswith("/ops/events") for route in asked[before:])
        )


def pass_time(page: Page, happens: Callable[[], bool]) -> None:
    """Let the page's time pass until something happens."""
    while not happens():
        page.clock.run_for(1000)
        page.wait_for_timeout(20)


def test_a_newer_page_is_loaded_once_no_input_is_unsaved(served: Site) -> None:
    version = "1.0"

    def answer(route: Route) -> None:
        told = {"state": "open", "has_password": True, "hostname": "gateway"}
        route.fulfill(json=told | {"version": version})

    with served.visit("#/settings") as page:
        page.route("**/console/session", answer)
        page.route("**/ops/events", lambda route: route.abort())
        page.reload()
        page.evaluate("location.hash = '#/whitelist'")
        domains = page.get_by_label("Domains")
        domains.fill("typed.test")
        expect(domains).to_have_value("typed.test")
        version = "1.1"
        with page.expect_response("**/console/session"):
            pass
        page.wait_for_timeout(300)
        expect(domains).to_have_value("typed.test")
        with page.expect_event("load"):
            page.get_by_role("button", name="Undo").click()


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


def test_nodes_are_added_measured_and_changed_together(served: Site) -> None:
    node = served.lab.nodes["http"]
    with served.visit("#/nodes") as page:
        page.get_by_role("button", name="Add a node").click()
        form = page.get_by_role("form", name="Add a node")
        form.get_by_label("Name", exact=True).fill("fresh")
        form.get_by_label("Protocol").select_option("http")
        form.get_by_label("server").fill(str(node.clash["server"]))
        form.get_by_label("port").fill("70000")
        form.get_by_role("button", name="Save").click()
        expect(form.get_by_label("port")).to_have_accessible_description(
            "port must be a whole number from 1 to 65535"
        )
        form.get_by_label("port").fill(str(node.clash["port"]))
        form.get_by_label("username").fill(str(node.clash["username"]))
        form.get_by_label("password").fill(str(node.clash["password"]))
        form.get_by_role("button", name="Save").click()
        expect(form).to_have_count(0)
        (made,) = [n for n in served.lab.api.get("/nodes")["data"] if n["name"] == "fresh"]
        assert json.loads(made["config_json"]) == node.clash

        page.get_by_role("button", name="Test delays").click()
        for name in ("fresh", "socks5", "ss"):
            expect(page.get_by_role("button", name=f"Measure the delay of {name}")).to_contain_text(
                "ms", timeout=15_000
            )
        screenshot(page, "nodes-measured")

        page.get_by_label("Select all rows").check()
        page.get_by_role("button", name="Change…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Set the group").check()
        dialog.get_by_label("Group", exact=True).fill("moved")
        dialog.get_by_label("Reached through").select_option("An interface")
        # An empty name would remove the egress.
        dialog.get_by_role("button", name="Save").click()
        expect(dialog.get_by_label("Interface", exact=True)).to_be_focused()
        dialog.get_by_label("Reached through").select_option("Another node")
        dialog.get_by_role("button", name="Save").click()
        expect(dialog.get_by_label("Node", exact=True)).to_be_focused()
        dialog.get_by_label("Reached through").select_option("An interface")
        dialog.get_by_label("Interface", exact=True).fill("wan2")
        dialog.get_by_role("button", name="Save").click()
        expect(dialog).to_have_count(0)
        assert {n["group"] for n in served.lab.api.get("/nodes")["data"]} == {"moved"}
        expect(page.get_by_role("row").filter(has_text="fresh")).to_contain_text("wan2")

        page.get_by_role("button", name="Change…").click()
        dialog.get_by_label("Set the group").check()
        dialog.get_by_role("button", name="Save").click()
        question = page.get_by_role("dialog", name="Save what is left empty?")
        expect(question).to_contain_text("nodes leave their groups")
        question.get_by_role("button", name="Cancel").click()
        expect(question).to_have_count(0)
        assert {n["group"] for n in served.lab.api.get("/nodes")["data"]} == {"moved"}
        dialog.get_by_label("Set the group").uncheck()
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)


def test_the_form_of_a_node_has_its_path_its_dns_and_its_udp(tidy: Site) -> None:
    tidy.lab.api.post("/nodes", tidy.lab.nodes["ss"].draft() | {"name": "whole"})

    def config() -> dict[str, Any]:
        (node,) = [one for one in tidy.lab.api.get("/nodes")["data"] if one["name"] == "whole"]
        found: dict[str, Any] = json.loads(node["config_json"])
        return found

    before = config()
    with tidy.visit("#/nodes?q=whole") as page:
        form = page.get_by_role("form", name="Edit whole")
        save = form.get_by_role("button", name="Save")
        page.get_by_role("button", name="Edit whole").click()
        form.get_by_label("Reached through").select_option("Another node")
        form.get_by_label("Node", exact=True).fill("nobody")
        save.click()
        expect(form.get_by_label("Node", exact=True)).to_have_accessible_description(
            "Node must name a node; there is no node 'nobody'"
        )
        form.get_by_label("Reached through").select_option("An interface")
        form.get_by_label("Interface", exact=True).fill("wan2")
        form.get_by_label("DNS", exact=True).select_option("Own servers")
        form.get_by_label("DNS servers").press_sequentially("1.1.1.1, 9.9.9.9")
        form.get_by_label("UDP of clients").select_option("Refused")
        assert serious(page) == []
        save.click()
        expect(form).to_have_count(0)
        assert config() == before | {
            "interface-name": "wan2",
            "dns-profile": "custom",
            "dns-servers": ["1.1.1.1", "9.9.9.9"],
            "udp": False,
        }

        page.get_by_role("button", name="Edit whole").click()
        expect(form.get_by_label("Interface", exact=True)).to_have_value("wan2")
        form.get_by_label("Reached through").select_option("The default path")
        form.get_by_label("DNS servers").fill("")
        form.get_by_label("DNS", exact=True).select_option("Automatic")
        form.get_by_label("UDP of clients").select_option("Carried by the node")
        save.click()
        expect(form).to_have_count(0)
        assert config() == before


def test_a_new_key_pair_fills_the_form_of_a_node(tidy: Site) -> None:
    with tidy.visit("#/nodes") as page:
        page.get_by_role("button", name="Add a node").click()
        form = page.get_by_role("form", name="Add a node")
        form.get_by_label("Protocol").select_option("wireguard")
        form.get_by_role("button", name="New key pair").click()
        public = form.locator("[role=status] .mono").inner_text()
        private = form.get_by_label("private-key").input_value()
        assert len(b64decode(public)) == len(b64decode(private)) == 32
        assert public != private


def test_an_import_of_nodes_recognises_its_form(tidy: Site) -> None:
    clash = (
        "proxies:\n"
        "  - {name: one, type: socks5, server: 203.0.113.91, port: 1080}\n"
        "  - {name: two, type: socks5, server: 203.0.113.92, port: 1080}\n"
        "  - {name: bad, type: socks5, server: 203.0.113.93}\n"
    )
    with tidy.visit("#/nodes") as page:
        page.get_by_role("button", name="More").first.click()
        page.get_by_role("menuitem", name="Import").click()
        dialog = page.get_by_role("dialog", name="Import nodes")
        dialog.get_by_label("Rows to import").fill(clash)
        form = dialog.get_by_label("Format")
        expect(form.locator("option:checked")).to_have_text("Recognised: Clash")
        rows = dialog.get_by_role("listitem")
        expect(rows.nth(1)).to_contain_text("one: added")
        expect(rows.nth(3)).to_contain_text("Port")
        expect(dialog.get_by_role("button", name="Import 2 rows")).to_be_enabled()
        screenshot(page, "import-recognised")
        assert serious(page) == []
        form.select_option(label="Shadowsocks")
        expect(dialog.get_by_role("button", name="Import", exact=False).last).to_be_disabled()
        form.select_option("auto")
        dialog.get_by_role("button", name="Import 2 rows").click()
        expect(dialog).to_have_count(0)
        page.get_by_role("button", name="More").first.click()
        page.get_by_role("menuitem", name="Import").click()
        dialog.get_by_label("Rows to import").fill(
            "socks5://203.0.113.91:1080#one\nsocks5://203.0.113.92:1081#two"
        )
        expect(form.locator("option:checked")).to_have_text("Recognised: share links")
        expect(rows.nth(0)).to_contain_text("one: no change")
        expect(rows.nth(1)).to_contain_text("two: skipped, there is another one of this name")
        dialog.get_by_label("Replace the whole list").check()
        expect(rows.nth(1)).to_contain_text("two: changed (port)")
        expect(dialog.get_by_text("Removes ")).to_be_visible()


def test_cached_nodes_are_not_sent_again(served: Site) -> None:
    def is_list(answer: Response) -> bool:
        return answer.url.endswith("/nodes") and answer.request.method == "GET"

    with served.visit("#/nodes") as page:
        form = page.get_by_role("form", name="Edit ss")
        # The first time, the form may write the same fields in another order.
        for status in (200, 304):
            page.get_by_role("button", name="Edit ss").click()
            with page.expect_response(is_list) as answered:
                form.get_by_role("button", name="Save").click()
            expect(form).to_have_count(0)
            # The browser caches no list, since lists hold passwords: the page itself has the nodes.
            assert answered.value.header_value("cache-control") == "no-store"
            assert answered.value.status in (status, 304)
        expect(page.get_by_role("row").filter(has_text="socks5").first).to_be_visible()


def test_nodes_show_the_address_that_they_leave_by(tidy: Site) -> None:
    for name in ("alone", "twin-1", "twin-2"):
        tidy.lab.api.post("/nodes", tidy.lab.nodes["http"].draft() | {"name": name})
    answer = tidy.lab.api.ask("GET", "/ops/exits").body
    exits = {"alone": ("203.0.113.7", ()), "twin-1": ("203.0.113.8", ("twin-2",))}
    answer["data"] = [
        {
            "name": name,
            "kind": "node",
            "ip": ip,
            "country": "JP",
            "seen_at": "2026-11-20T22:58:40Z",
            "changed_at": "2026-11-18T04:10:02Z",
            "shared_with": shared,
            "error": "",
            "error_coded": None,
        }
        for name, (ip, shared) in exits.items()
    ]
    with tidy.visit("#/overview", width=1440) as page:
        page.route("**/ops/exits", lambda route: route.fulfill(json=answer))
        page.get_by_role("link", name="Nodes").click()
        rows = page.get_by_role("row")
        expect(rows.filter(has_text="alone")).to_contain_text("203.0.113.7 JP")
        expect(rows.filter(has_text="twin-1")).to_contain_text("The same address as twin-2")
        expect(rows.filter(has_text="twin-2").last).to_be_visible()
        expect(rows.filter(has_text="alone")).not_to_contain_text("The same address")
        screenshot(page, "nodes-exits")


def test_a_delay_test_can_be_cancelled(served: Site) -> None:
    # Documentation addresses (RFC 5737) that no host of the lab has: each takes its 5 s.
    rows = "\n".join(f"203.0.113.{n},1080,,,dead-{n}" for n in range(100, 130))
    served.lab.api.post("/nodes/import", {"type": "socks5", "text": rows})
    with served.visit("#/nodes?q=dead") as page:
        page.get_by_role("button", name="Test delays").click()
        progress = page.get_by_role("progressbar", name="Test delays")
        expect(progress).to_have_attribute("max", "30")
        page.get_by_role("button", name="Cancel").click()
        expect(progress).to_have_count(0)
        expect(page.get_by_role("button", name="Test delays")).to_be_enabled()


def test_the_delay_of_an_edited_node_is_discarded(served: Site) -> None:
    api = served.lab.api
    rows = "\n".join(f"203.0.113.{n},1080,,,calm-{n}" for n in range(1, 6))
    api.post("/nodes/import", {"type": "socks5", "text": rows})
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    with served.visit("#/nodes?q=calm") as page:
        badges = [
            page.get_by_role("button", name=f"Measure the delay of calm-{n}") for n in range(1, 6)
        ]
        page.route("**/nodes/delay?*", hold)
        page.get_by_role("button", name="Test delays").click()
        expect(badges[2]).to_contain_text("…")
        page.wait_for_timeout(300)
        # The browser's other connections are left for the page.
        assert len(held) == 3
        held[0].abort()
        held[1].fulfill(json={"delay": 42})
        expect(badges[1]).to_contain_text("42 ms")
        # A node that was not reached yet has not failed.
        expect(badges[0]).to_contain_text("test")
        error = {"code": "other", "values": {"text": "timed out"}, "text": "timed out"}
        held[2].fulfill(json={"delay": -1, "error": "timed out", "error_coded": error})
        expect(badges[2]).to_have_accessible_name(re.compile("^failed .* timed out$"))
        page.get_by_role("button", name="Cancel").click()

        (node,) = [n for n in api.get("/nodes")["data"] if n["name"] == "calm-2"]
        config = {"server": "203.0.113.99", "port": 1080}
        draft = {key: node[key] for key in ("name", "protocol", "group")}
        api.put(f"/nodes/{node['id']}", draft | {"config_json": json.dumps(config)})
        expect(badges[1]).to_contain_text("test")


def test_blocked_rules_are_shown_before_nodes_are_deleted(tidy: Site) -> None:
    api = tidy.lab.api
    rows = "203.0.113.11,1080,,,cut-1\n203.0.113.12,1080,,,cut-2"
    api.post("/nodes/import", {"type": "socks5", "text": rows, "group": "cut"})
    api.post("/rules", {"ip": "10.77.7.1", "target_node": "Group_cut"})
    with tidy.visit("#/nodes?q=cut") as page:
        question = page.get_by_role("dialog", name=re.compile("^Delete "))

        def ask(button: Locator, answer: str) -> None:
            """Wait until the page has loaded the data for the answer, which it does beside the
            list.
            """
            for _ in range(50):
                button.click()
                if answer in question.inner_text():
                    return
                question.get_by_role("button", name="Cancel").click()
                page.wait_for_timeout(100)
            raise AssertionError(f"the question never said: {answer}")

        ask(page.get_by_role("button", name="Delete cut-1"), "No client is blocked by this.")
        question.get_by_role("button", name="Cancel").click()

        api.put("/whitelist", {"domains": "listed.test", "ips": "", "node": "cut-2"})
        page.get_by_label("Select all rows").check()
        delete = page.get_by_role("toolbar").get_by_role("button", name="Delete")
        ask(delete, "The whitelist's destinations are blocked.")
        expect(question).to_contain_text("1 rule loses its target.")
        question.get_by_role("button", name="Delete").click()
        expect(page.get_by_text("No row matches the filter.")).to_be_visible()


def test_the_reason_of_an_offline_line_is_shown(served: Site) -> None:
    with served.visit("#/lines") as page:
        page.get_by_role("button", name="Add a line").click()
        form = page.get_by_role("form", name="Add a line")
        form.get_by_label("Name", exact=True).fill("l2tp_a")
        form.get_by_label("Server").fill("192.0.2.99")
        form.get_by_label("User name").fill("office")
        form.get_by_label("Password").fill("correct horse")
        form.get_by_label("DNS", exact=True).select_option("Own servers")
        form.get_by_role("button", name="Save").click()
        expect(form.get_by_label("DNS servers")).to_have_accessible_description(
            "DNS servers must hold a DNS server when DNS is custom"
        )
        form.get_by_label("DNS servers").fill("1.1.1.1, 8.8.8.8")
        form.get_by_role("button", name="Save").click()
        expect(form).to_have_count(0)
        expect(page.get_by_role("row").filter(has_text="l2tp_a")).to_contain_text("Offline")
        (line,) = served.lab.api.get("/vpn-lines")["data"]
        assert line["dns_servers"] == ["1.1.1.1", "8.8.8.8"]
        page.get_by_role("switch", name="Line l2tp_a").click()
        expect(page.get_by_role("row").filter(has_text="l2tp_a")).to_contain_text("Off")
        page.get_by_role("button", name="More").click()
        page.get_by_role("menuitem", name="Import").click()
        importing = page.get_by_role("dialog", name="Import lines")
        expect(importing).to_contain_text("changed as its row says, and enabled")
        importing.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Delete l2tp_a").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_text("There is no VPN line yet.")).to_be_visible()


def test_saving_a_line_keeps_fields_that_the_form_does_not_show(tidy: Site) -> None:
    api = tidy.lab.api
    line = {
        "type": "l2tp",
        "name": "l2tp_b",
        "server": "192.0.2.99",
        "username": "office",
        "password": "correct horse",
        "dns_profile": "domestic",
        "dns_servers": ["1.1.1.1"],
    }
    api.post("/vpn-lines", line)
    with tidy.visit("#/lines") as page:
        page.get_by_role("button", name="Edit l2tp_b").click()
        form = page.get_by_role("form", name="Edit l2tp_b")
        form.get_by_label("Comment").fill("branch")
        tidy.rename_line("l2tp_b", "l2tp_c")
        form.get_by_role("button", name="Save").click()
        expect(form).to_have_count(0)
    (now,) = api.get("/vpn-lines")["data"]
    assert (now["name"], now["comment"]) == ("l2tp_c", "branch")
    assert now["dns_servers"] == ["1.1.1.1"]


def test_a_form_does_not_overwrite_another_line_with_the_same_name(tidy: Site) -> None:
    api = tidy.lab.api
    line = {"type": "l2tp", "name": "l2tp_d", "username": "office", "password": "correct horse"}
    api.post("/vpn-lines", {**line, "server": "192.0.2.99"})
    with tidy.visit("#/lines") as page:
        page.get_by_role("button", name="Edit l2tp_d").click()
        form = page.get_by_role("form", name="Edit l2tp_d")
        form.get_by_label("Comment").fill("branch")
        api.delete("/vpn-lines", {"items": [{"type": "l2tp", "name": "l2tp_d"}]})
        api.post("/vpn-lines", {**line, "server": "192.0.2.98"})
        form.get_by_role("button", name="Save").click()
        expect(form.get_by_role("alert")).to_contain_text("was deleted meanwhile")
    (now,) = (each for each in api.get("/vpn-lines")["data"] if each["name"] == "l2tp_d")
    assert (now["server"], now["comment"]) == ("192.0.2.98", "")


def test_an_invalid_whitelist_entry_is_reported_at_its_list(served: Site) -> None:
    with served.visit("#/whitelist") as page:
        page.get_by_label("Domains").fill("example.com\nnot a domain")
        page.get_by_label("Addresses").fill("198.51.100.300")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("'not a domain'")).to_be_visible()
        expect(page.get_by_text("'198.51.100.300'")).to_be_visible()
        page.get_by_label("Domains").fill("example.com")
        page.get_by_label("Addresses").fill("198.51.100.0/24")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_role("status").filter(has_text="whitelist")).to_be_visible()
        assert served.lab.api.get("/whitelist")["domains"] == "example.com"


def test_typed_text_survives_a_change_of_the_whitelist(served: Site) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    with served.visit("#/whitelist") as page:
        domains = page.get_by_label("Domains")
        expect(domains).to_be_visible()
        page.route("**/whitelist", hold)
        with page.expect_request("**/whitelist"):
            served.lab.api.put("/whitelist", {"domains": "one.test", "ips": "", "node": "DIRECT"})
        domains.fill("another.test")
        with page.expect_response("**/whitelist"):
            for route in held:
                route.continue_()
        page.wait_for_timeout(300)
        expect(domains).to_have_value("another.test")


def test_a_proxy_service_is_created_and_disabled(served: Site) -> None:
    with served.visit("#/proxies") as page:
        page.get_by_role("button", name="Add a service").click()
        form = page.get_by_role("form", name="Add a service")
        form.get_by_label("Name", exact=True).fill("scraper")
        # The browser must not fill in the console's password, which it may have stored.
        expect(form.get_by_label("Password")).to_have_attribute("autocomplete", "new-password")
        form.get_by_label("Exit").fill("wan2")
        form.get_by_label("Port").fill("8787")
        form.get_by_role("button", name="Save").click()
        expect(form.get_by_role("alert")).to_contain_text("Port must")
        form.get_by_label("Port").fill("18080")
        form.get_by_role("button", name="Save").click()
        expect(form).to_have_count(0)
        expect(page.get_by_text("1 of 1,000")).to_be_visible()
        row = page.get_by_role("row").filter(has_text="scraper")
        expect(row).to_contain_text("10.77.0.1:18080")
        expect(row).to_contain_text("LAN only, no password")
        body = {"name": "named", "outbound_interface": "wan2", "port": 18081, "username": "eve"}
        made = served.lab.api.post("/proxy-services", body)
        expect(page.get_by_role("row").filter(has_text="eve")).to_contain_text("LAN only")
        served.lab.api.delete(f"/proxy-services/{made['id']}")
        page.get_by_role("switch", name="Proxy service scraper").click()
        expect(page.get_by_role("switch", name="Proxy service scraper")).not_to_be_checked()
        (service,) = served.lab.api.get("/proxy-services")["data"]
        assert service["is_enabled"] is False
        page.get_by_role("button", name="More").click()
        with page.expect_download() as downloading:
            page.get_by_role("menuitem", name="Export").click()
        # An import would switch it on.
        assert Path(downloading.value.path()).read_text("utf-8-sig") == "# scraper,wan2,18080,,\n"


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


def test_the_filter_finds_devices_that_are_not_shown(served: Site) -> None:
    seen = "2026-11-20T22:58:40Z"
    blank = dict.fromkeys(("hostname", "vendor", "comment", "covered_by"), "")
    flags = {"is_random_mac": False, "is_online": True, "is_bound": False, "rule_id": None}
    found = [
        blank
        | flags
        | {"mac": f"02:00:00:00:{n // 256:02x}:{n % 256:02x}", "name": f"tablet {n}"}
        | {"addresses": [], "first_seen": seen, "last_seen": seen, "tried": []}
        for n in range(900)
    ]

    def answer(route: Route) -> None:
        most = int(route.request.url.rpartition("=")[2])
        route.fulfill(json={"data": found[:most], "total": 900, "without_rule": 900})

    with served.visit("#/settings") as page:
        page.route("**/ops/devices?*", answer)
        page.get_by_role("link", name="Devices").click()
        expect(page.get_by_text("400 more devices are not shown.")).to_be_visible()
        page.get_by_label("Filter").fill("tablet 899")
        expect(page.get_by_role("row").filter(has_text="tablet 899")).to_be_visible()
        expect(page.get_by_text("not shown")).to_have_count(0)


def test_a_rule_leads_to_its_clients_history(served: Site) -> None:
    client = served.lab.client(1)
    with served.visit("#/rules") as page:
        page.get_by_role("link", name=f"History of {client.address}").click()
        expect(page).to_have_url(re.compile(f"#/history.key={re.escape(client.address)}"))
        expect(page.get_by_role("heading", level=1)).to_have_text("History")


def test_a_device_is_named_and_given_a_rule(tidy: Site) -> None:
    client = tidy.lab.client(3)
    mac = client.host.mac("eth0").hex(":")
    client.host.emit("eth0", request(mac, {12: b"\x1b[2J<img src=x onerror=alert(1)>tv"}))
    with tidy.visit("#/devices") as page:
        unruled = page.get_by_role("table", name="Without a rule")
        row = unruled.get_by_role("row").filter(has_text=mac)
        expect(row).to_contain_text("img srcx onerroralert(1)tv", timeout=40_000)
        expect(row).to_contain_text(client.address)
        row.get_by_role("button", name="Edit img").click()
        form = page.get_by_role("dialog")
        form.get_by_label("Name", exact=True).fill("Anna's tablet")
        tidy.lab.device.run("devices", "name", mac, "Bert's tablet")
        form.get_by_role("button", name="Save").click()
        expect(form.get_by_role("alert")).to_contain_text("has been changed since it was read")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Discard").click()
        row.get_by_role("button", name="Edit Bert's tablet").click()
        form.get_by_label("Name", exact=True).fill("Anna's tablet")
        screenshot(page, "device-name")
        assert serious(page) == []
        form.get_by_role("button", name="Save").click()
        expect(row).to_contain_text("Anna's tablet")
        row.get_by_role("button", name="Add a rule for Anna's tablet").click()
        expect(form.get_by_label("Client")).to_have_value(client.address)
        expect(form.get_by_label("Comment")).to_have_value("Anna's tablet")
        expect(form.get_by_label("Exit")).to_have_value("")
        form.get_by_label("Exit").fill("DIRECT")
        page.keyboard.press("Tab")
        screenshot(page, "device-rule")
        assert serious(page) == []
        form.get_by_role("button", name="Save").click()
        ruled = page.get_by_role("table", name="With a rule").get_by_role("row")
        expect(ruled.filter(has_text=mac)).to_contain_text("DIRECT")
        ruled.get_by_role("button", name="Edit Anna's tablet").click()
        form.get_by_label("The rule belongs to this device").check()
        screenshot(page, "device-bound")
        assert serious(page) == []
        form.get_by_role("button", name="Save").click()
        expect(ruled.filter(has_text=mac)).to_contain_text("bound to this device")
        screenshot(page, "devices")
        page.get_by_role("searchbox").fill("anna")
        expect(ruled).to_have_count(2)
        page.get_by_role("button", name="Forget Anna's tablet").click()
        page.get_by_role("button", name="Forget", exact=True).click()
        expect(ruled.filter(has_text="Anna's tablet")).to_have_count(0)


def test_a_rule_leads_to_its_clients_connections_which_are_closed(served: Site) -> None:
    client = served.lab.client(1)
    opened = client.connect()
    with served.visit("#/rules") as page:
        page.get_by_role("link", name=f"Connections of {client.address}").click()
        row = page.get_by_role("row").filter(has_text=f"{WEB_SERVERS[0]}:7").first
        expect(row).to_contain_text("open")
        expect(row).to_contain_text("TCP")
        assert serious(page) == []
        screenshot(page, "connections")
        row.get_by_role("button", name=f"Close the connection to {WEB_SERVERS[0]}:7").click()
        expect(page.get_by_text(f"1 connection of {client.address} closed")).to_be_visible()
        assert not opened.exchange("too late").ok
        opened.close()
        kept = client.connect()
        expect(row).to_contain_text("open", timeout=15_000)
        page.get_by_role("button", name="Close all", exact=True).click()
        page.get_by_role("dialog").get_by_role("button", name="Close", exact=True).last.click()
        eventually(lambda: not kept.exchange("too late").ok)
        kept.close()


def test_the_explanation_shows_a_client_with_a_dead_node_as_blocked(tidy: Site) -> None:
    lab, client = tidy.lab, tidy.lab.client(1)
    node = lab.nodes["ss"]
    node.program.kill()
    try:
        assert not client.http(f"http://{WEB_SERVERS[0]}/", timeout=2).ok
        with tidy.visit(f"#/why?client={client.address}&destination={WEB_SERVERS[0]}") as page:

            def asked() -> bool:
                page.get_by_role("button", name="Explain").click()
                page.locator(".verdict").wait_for()
                return page.locator(".verdict.blocked").count() == 1

            eventually(asked, 20)
            verdict = page.locator(".verdict")
            expect(verdict).to_contain_text("its node fails: connection refused")
            expect(verdict).to_contain_text("Since ")
            # Only a new attempt shows whether this still holds.
            expect(page.get_by_role("button", name="Test it now")).to_be_enabled()
            page.evaluate("location.hash = '#/overview'")
            blocked = page.get_by_role("region", name="Problems")
            expect(blocked).to_contain_text("its node fails: connection refused")
            expect(blocked).to_contain_text("since ")
    finally:
        lab.start_node(node)
        asked_for = f"/ops/explain?client={client.address}&destination={WEB_SERVERS[0]}"
        eventually(lambda: lab.api.ask("GET", asked_for).body["reason"] == "", 30)


def test_the_explanation_page_explains_and_probes(served: Site) -> None:
    client, node = served.lab.client(1), served.lab.nodes["ss"]
    with served.visit(f"#/why?client={client.address}") as page:
        page.get_by_label("Destination").fill("site.test")
        page.get_by_label("Port").fill("80")
        page.get_by_role("button", name="Explain").click()
        expect(page.get_by_role("heading", name=f"{client.address} uses the exit")).to_be_visible()
        expect(page.get_by_role("list", name="Path")).to_contain_text("ss")
        page.get_by_label("Site that returns its visitor's address").fill(SEEN_AT)
        page.get_by_role("button", name="Test it now").click()
        expect(page.get_by_text(f"The site sees {node.address}")).to_be_visible(timeout=15_000)
        screenshot(page, "why")

        page.get_by_label("Client").fill("10.77.0.200")
        page.get_by_role("button", name="Explain").click()
        expect(page.get_by_role("heading", name="10.77.0.200 is blocked")).to_be_visible()
        expect(page.get_by_role("button", name="Test it now")).to_be_disabled()


def test_a_probe_of_a_group_names_the_clients_node(served: Site) -> None:
    lab = served.lab
    lab.api.post("/nodes", lab.nodes["socks5"].draft("prove") | {"name": "prove-1"})
    lab.api.post("/nodes", lab.nodes["http"].draft("prove") | {"name": "prove-2"})
    client = lab.client(3)
    lab.api.post("/rules", {"ip": client.address, "target_node": "Group_prove"})
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    with served.visit(f"#/why?client={client.address}") as page:
        page.get_by_label("Destination").fill("site.test")
        page.get_by_label("Port").fill("80")
        page.get_by_role("button", name="Explain").click()
        page.get_by_label("Site that returns its visitor's address").fill(SEEN_AT)
        prove = page.get_by_role("button", name="Test it now")
        prove.click()
        ways = page.get_by_role("list", name="Tested nodes")
        expect(ways.get_by_role("listitem")).to_have_count(2, timeout=15_000)
        seen = client.http(SEEN_AT).seen
        expect(page.get_by_text(f"The site sees {seen}")).to_be_visible()
        expect(ways.get_by_role("listitem").filter(has_text="used by this client")).to_contain_text(
            seen
        )
        screenshot(page, "why-group")

        # An answer that comes when another client is shown is not that client's.
        page.route("**/ops/probe", hold)
        with page.expect_request("**/ops/probe"):
            prove.click()
        page.get_by_label("Client").fill("10.77.0.200")
        page.get_by_role("button", name="Explain").click()
        expect(page.get_by_role("heading", name="10.77.0.200 is blocked")).to_be_visible()
        with page.expect_response("**/ops/probe", timeout=15_000):
            held[0].continue_()
        page.wait_for_timeout(300)
        expect(page.get_by_text("The site sees")).to_have_count(0)
        expect(page.get_by_text("Sends a real request")).to_be_visible()


def test_the_token_is_shown_on_request_only_and_reset_with_a_warning(served: Site) -> None:
    lab = served.lab
    with served.visit("#/api") as page, served.visit("#/api") as other:
        expect(other.get_by_text("Running", exact=True).locator("visible=true")).to_be_visible()
        other.get_by_role("button", name="Reveal").click()
        shown = other.get_by_text(lab.api.token)
        expect(shown).to_be_visible()
        token = page.get_by_role("region", name="API token")
        expect(token.get_by_text(lab.api.token[:4])).to_be_visible()
        assert lab.api.token not in page.content()
        token.get_by_role("button", name="Reveal").click()
        expect(token.get_by_text(lab.api.token)).to_be_visible()
        expect(page.get_by_text("API available")).to_be_visible()
        expect(page.get_by_text(f"{lab.device.url}/svc/api/v1/system/status")).to_be_visible()

        page.locator("input[type=file]").set_input_files(
            {"name": "license", "mimeType": "text/plain", "buffer": b"no license at all"}
        )
        expect(page.get_by_role("status").filter(has_text="license")).to_be_visible()

        token.get_by_role("button", name="Reset the token").click()
        page.get_by_role("dialog").get_by_role("button", name="Reset the token").click()
        expect(token.get_by_text(lab.api.token)).to_have_count(0)
        expect(shown).to_have_count(0)
        assert lab.api.ask("GET", "/svc/api/v1/rules").status == 401
        lab.api.token = token.locator("code").inner_text()
        assert lab.api.ask("GET", "/svc/api/v1/rules").status == 200


def test_the_service_is_stopped_opened_and_started(served: Site) -> None:
    client = served.lab.client(1)
    assert client.http(SEEN_AT).ok
    with served.visit("#/settings") as page:
        service = page.get_by_role("region", name="Service")
        service.get_by_role("button", name="Stop").click()
        page.get_by_role("dialog").get_by_role("button", name="Stop").click()
        expect(page.get_by_text("Stopped: every client is blocked.")).to_be_visible()
        assert not client.http(SEEN_AT, timeout=2).ok

        service.get_by_role("button", name="Bypass all rules…").click()
        dialog = page.get_by_role("dialog")
        act = dialog.get_by_role("button", name="Bypass all rules…")
        expect(act).to_be_disabled()
        dialog.get_by_role("textbox").fill("open")
        act.click()
        expect(page.get_by_text("Open: the rules are off")).to_be_visible()
        assert client.http(SEEN_AT).seen == served.lab.wan(1).address

        service.get_by_role("button", name="Start").click()
        expect(page.get_by_text("Open: the rules are off")).to_have_count(0)
        assert client.http(SEEN_AT).seen == served.lab.nodes["ss"].address


def test_a_failed_backup_is_reported(served: Site) -> None:
    with served.visit("#/settings") as page:
        refusal = {"error": "write the backup: No space left on device"}
        page.route("**/ops/backup", lambda route: route.fulfill(status=500, json=refusal))
        page.get_by_role("button", name="Download a backup").click()
        expect(page.get_by_role("status").filter(has_text="No space left")).to_be_visible()


def test_a_refused_restore_is_reported(served: Site) -> None:
    over_quota = fault("", "backup-over-quota", number=3, quota=2)
    why = str(over_quota)
    answer = msgspec.to_builtins(problem(409, why, [over_quota]))
    with served.visit("#/settings") as page:
        page.route("**/ops/restore", lambda route: route.fulfill(status=409, json=answer))
        # The file's input is invisible; its focus is shown on its label.
        restore = page.get_by_text("Restore…")
        page.get_by_role("button", name="Download a backup").focus()
        page.keyboard.press("Tab")
        expect(restore).to_have_css("outline-style", "solid")
        restore.locator("input").set_input_files(
            {"name": "a.backup", "mimeType": "application/vnd.sqlite3", "buffer": b"many"}
        )
        page.get_by_role("dialog").get_by_role("button", name="Restore…").click()
        told = page.get_by_role("status").filter(has_text=why)
        expect(told.locator(".bad")).to_be_visible()


def test_a_backup_is_downloaded_and_restored(served: Site, tmp_path: Path) -> None:
    with served.visit("#/settings") as page:
        with page.expect_download() as downloading:
            page.get_by_role("button", name="Download a backup").click()
        file = tmp_path / "device.backup"
        downloading.value.save_as(file)
        served.lab.api.post("/rules", {"ip": "10.77.8.8", "target_node": "DIRECT"})
        page.get_by_role("region", name="Backup").locator("input").set_input_files(file)
        page.get_by_role("dialog").get_by_role("button", name="Restore…").click()
        expect(page.get_by_role("status").filter(has_text="backup")).to_be_visible(timeout=20_000)
        assert not [r for r in served.lab.api.get("/rules")["data"] if r["ip"] == "10.77.8.8"]

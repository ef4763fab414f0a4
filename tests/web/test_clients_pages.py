"""The pages *Devices* and *Why?*, against a real device."""

from __future__ import annotations

import pytest
from playwright.sync_api import Route, expect

from egressd_lab.spec import WEB_SERVERS
from tests.support.device import eventually
from tests.support.dhcp import request
from tests.web.axe import serious
from tests.web.chromium import screenshot
from tests.web.site import Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]

SEEN_AT = f"http://{WEB_SERVERS[0]}/"


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
        tidy.lab.device.run("devices", "name", mac, "Bert's tablet", "--comment", "of Bert")
        form.get_by_role("button", name="Save").click()
        expect(form).to_contain_text("Changed by another session meanwhile, to “Bert's tablet”")
        screenshot(page, "device-name")
        assert serious(page) == []
        form.get_by_role("button", name="Save").click()
        expect(row).to_contain_text("Anna's tablet")
        device = tidy.lab.api.ask("GET", f"/ops/devices/{mac}").body
        assert device["comment"] == "of Bert", "what only the other one has changed stays"
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

"""The page of nodes, against a real device."""

from __future__ import annotations

import json
import re
from base64 import b64decode
from typing import Any

import pytest
from playwright.sync_api import Locator, Response, Route, expect

from tests.web.axe import serious
from tests.web.chromium import screenshot
from tests.web.site import Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]


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


def test_the_form_of_a_node_has_its_sellers_page_and_rotates_it(tidy: Site) -> None:
    lab, seller = tidy.lab, "https://seller.example/change?key=4711"
    made = lab.api.post("/nodes", lab.nodes["ss"].draft() | {"name": "phone"})
    path = f"/ops/nodes/{made['id']}"

    def stored() -> tuple[str, str]:
        node = lab.api.ask("GET", path).body
        return node["change_ip_url"], node["change_ip_via"]

    def ended(route: Route) -> None:
        looks.append(route.request.url)
        over = {"state": "done", "exit_before": "203.0.113.7", "exit_after": "203.0.113.9"}
        begun = lab.api.ask("GET", path + route.request.url.partition(path)[2]).body
        route.fulfill(json=begun if len(looks) == 1 else begun | over)

    looks: list[str] = []
    with tidy.visit("#/nodes?q=phone") as page:
        form = page.get_by_role("form", name="Edit phone")
        url, via = form.get_by_label("Page that changes its address"), form.get_by_label("Asked by")
        save = form.get_by_role("button", name="Save")
        page.get_by_role("button", name="Edit phone").click()
        expect(via).to_have_count(0)
        expect(form.get_by_role("button", name="Rotate")).to_have_count(0)
        url.fill("https://10.0.0.1/change")
        via.fill("Group_pool")
        save.click()
        expect(url).to_have_accessible_description(re.compile("10.0.0.1"))
        expect(via).to_have_accessible_description(re.compile("DIRECT"))
        url.fill(seller)
        via.fill("Interface:wan2")
        page.keyboard.press("Escape")
        assert serious(page) == []
        save.click()
        expect(form).to_have_count(0)
        assert stored() == (seller, "Interface:wan2")

        page.route("**/rotations/*", ended)
        page.get_by_role("button", name="Edit phone").click()
        expect(url).to_have_value(seller)
        expect(via).to_have_value("Interface:wan2")
        form.get_by_role("button", name="phone").click()
        page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
        expect(form.get_by_role("status")).to_contain_text("203.0.113.9")
        assert len(looks) == 2
        assert serious(page) == []
        screenshot(page, "node-rotation")
        url.fill("")
        save.click()
        expect(form).to_have_count(0)
        assert stored() == ("", "")


def test_a_new_node_may_have_its_sellers_page(tidy: Site) -> None:
    seller = "https://seller.example/change?key=4711"
    with tidy.visit("#/nodes") as page:
        page.get_by_role("button", name="Add a node").click()
        form = page.get_by_role("form", name="Add a node")
        form.get_by_label("Name", exact=True).fill("phone")
        form.get_by_label("server").fill("203.0.113.91")
        form.get_by_label("port").fill("1080")
        url, via = form.get_by_label("Page that changes its address"), form.get_by_label("Asked by")
        url.fill("https://10.0.0.1/change")
        expect(form.get_by_role("button", name="Rotate")).to_have_count(0)
        form.get_by_role("button", name="Save").click()
        expect(url).to_have_accessible_description(re.compile("10.0.0.1"))
        url.fill(seller)
        via.fill("Interface:wan2")
        page.keyboard.press("Escape")
        assert serious(page) == []
        form.get_by_role("button", name="Save").click()
        expect(form).to_have_count(0)
    (made,) = [one for one in tidy.lab.api.get("/nodes")["data"] if one["name"] == "phone"]
    stored = tidy.lab.api.ask("GET", f"/ops/nodes/{made['id']}").body
    assert (stored["change_ip_url"], stored["change_ip_via"]) == (seller, "Interface:wan2")


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

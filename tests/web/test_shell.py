"""The palette, the menu, and the connection to a device that does not answer."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, Route, expect

from tests.support.device import SERVER, eventually
from tests.web.axe import serious
from tests.web.chromium import screenshot
from tests.web.site import Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]


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


def test_the_palette_asks_the_device_for_devices_that_are_typed(served: Site) -> None:
    api, client = served.lab.api, served.lab.client(1)
    assert client.http(f"http://{SERVER}/").ok
    eventually(lambda: bool(known(served, client.address)), 30)
    (mac,) = known(served, client.address)
    assert api.ask("PATCH", f"/ops/devices/{mac}", {"name": "Anna's tablet"}).status == 200
    asked: list[str] = []
    with served.visit("#/overview") as page:
        page.on("request", lambda request: asked.append(request.url))
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        page.keyboard.press("Control+k")
        expect(page.get_by_role("combobox", name="Find or do")).to_be_focused()
        page.keyboard.type("tablet anna")
        expect(page.get_by_role("option", selected=True)).to_contain_text(client.address)
    of_devices = [url for url in asked if "/ops/devices" in url]
    assert of_devices
    assert all("limit=40&search=t" in url for url in of_devices)


def known(site: Site, address: str) -> list[str]:
    """Return the MACs of devices with an address."""
    devices = site.lab.api.ask("GET", "/ops/devices").body["data"]
    return [
        each["mac"] for each in devices if address in [seen["ip"] for seen in each["addresses"]]
    ]


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

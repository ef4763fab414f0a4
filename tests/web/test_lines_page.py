"""The pages of VPN lines and proxy services, against a real device."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.web.site import Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]


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

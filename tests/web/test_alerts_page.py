"""Alerts on the page of the settings."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.support.device import SERVER
from tests.web.axe import serious
from tests.web.chromium import screenshot
from tests.web.site import Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]


def test_a_channel_is_made_tested_edited_and_deleted(site: Site) -> None:
    with site.visit("#/settings") as page:
        card = page.get_by_role("region", name="Alerts")
        expect(card).to_contain_text("There is no channel yet.")
        card.get_by_role("button", name="New channel").click()
        form = page.get_by_role("dialog", name="New channel")
        form.get_by_label("Name").fill("phone")
        form.get_by_label("URL of the service").fill("json://192.168.8.1/x")
        expect(form.get_by_label("Exit")).to_have_value("")
        form.get_by_label("Exit").fill("DIRECT")
        page.keyboard.press("Tab")
        form.get_by_role("button", name="Save").click()
        expect(form).to_contain_text("must not lead to this device or into a LAN")
        form.get_by_label("URL of the service").fill(f"json://{SERVER}/secret-path")
        assert serious(page) == []
        screenshot(page, "new-channel")
        form.get_by_role("button", name="Save").click()
        row = card.get_by_role("listitem")
        expect(row).to_contain_text("phone")
        assert "secret-path" not in page.content()

        card.get_by_role("button", name="Test the channel phone").click()
        expect(row).to_contain_text("A message was sent.", timeout=40_000)
        assert len(site.lab.internet.seen(text="secret-path")) == 1
        card.get_by_text("Last messages").click()
        expect(card).to_contain_text("a test of alerts")
        assert serious(page) == []
        screenshot(page, "alerts")

        card.get_by_role("button", name="Edit the channel phone").click()
        form = page.get_by_role("dialog", name="Edit the channel phone")
        form.get_by_label("Enabled").uncheck()
        form.get_by_role("button", name="Save").click()
        expect(row.first).to_contain_text("off")

        card.get_by_role("button", name="Change…").click()
        form = page.get_by_role("dialog", name="What is alerted")
        form.get_by_label("a new device is in a LAN").check()
        form.get_by_label("Quiet hours").fill("7-8")
        form.get_by_role("button", name="Save").click()
        expect(form).to_contain_text("must be hours of the day")
        form.get_by_label("Quiet hours").fill("23:00-07:00")
        assert serious(page) == []
        form.get_by_role("button", name="Save").click()
        expect(card).to_contain_text("quiet 23:00-07:00")
        policy = site.lab.api.ask("GET", "/ops/alerts/policy").body
        assert "device.new" in policy["on"]

        card.get_by_role("button", name="Delete the channel phone").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
        expect(card).to_contain_text("There is no channel yet.")
        page.get_by_role("status").get_by_role("button", name="Undo").click()
        expect(row.first).to_contain_text("phone")
        (found,) = site.lab.api.ask("GET", "/ops/alerts/channels").body["data"]
    assert site.lab.api.ask("DELETE", f"/ops/alerts/channels/{found['id']}").status == 200


def test_forms_of_alerts_show_what_another_has_changed(site: Site) -> None:
    ask = site.lab.api.ask
    body = {"name": "phone", "url": f"json://{SERVER}/x", "via": "DIRECT"}
    channel = f"/ops/alerts/channels/{ask('POST', '/ops/alerts/channels', body).body['id']}"
    policy = {"on": ["wan.down"], "for_s": 60, "quiet": "", "channels": []}
    assert ask("PUT", "/ops/alerts/policy", policy).status == 200
    with site.visit("#/settings") as page:
        card = page.get_by_role("region", name="Alerts")
        card.get_by_role("button", name="Edit the channel phone").click()
        form = page.get_by_role("dialog", name="Edit the channel phone")
        form.get_by_label("Name").fill("mine")
        assert ask("PATCH", channel, {"name": "theirs", "is_enabled": False}).status == 200
        form.get_by_role("button", name="Save").click()
        expect(form).to_contain_text("Changed by another session meanwhile, to “theirs”")
        form.get_by_role("button", name="Save").click()
        expect(form).to_be_hidden()
        saved = ask("GET", channel).body
        assert (saved["name"], saved["is_enabled"]) == ("mine", False)

        # The form shows no URL, so it can only say that another one may be stored.
        with page.expect_response(f"**{channel}"):
            card.get_by_role("button", name="Edit the channel mine").click()
        form = page.get_by_role("dialog", name="Edit the channel mine")
        form.get_by_label("URL").fill(f"xml://{SERVER}/mine")
        assert ask("PATCH", channel, {"url": f"form://{SERVER}/theirs"}).status == 200
        form.get_by_role("button", name="Save").click()
        expect(form).to_contain_text("perhaps with another value here")
        assert ask("GET", channel).body["service"] == "form"
        form.get_by_role("button", name="Save").click()
        expect(form).to_be_hidden()
        assert ask("GET", channel).body["service"] == "xml"

        card.get_by_role("button", name="Change…").click()
        form = page.get_by_role("dialog", name="What is alerted")
        form.get_by_label("After").fill("5")
        assert ask("PUT", "/ops/alerts/policy", policy | {"quiet": "01:00-02:00"}).status == 200
        form.get_by_role("button", name="Save").click()
        expect(form).to_be_hidden()
        saved = ask("GET", "/ops/alerts/policy").body
        assert (saved["for_s"], saved["quiet"]) == (5, "01:00-02:00")
    assert ask("DELETE", channel).status == 200

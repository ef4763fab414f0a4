"""The page of groups."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.web.axe import serious
from tests.web.chromium import screenshot
from tests.web.site import Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]


@pytest.mark.parametrize("width", [1280, 390])
def test_a_group_is_made_ordered_and_deleted(site: Site, width: int) -> None:
    with site.kept(), site.visit("#/groups", width=width) as page:
        site.lab.api.post("/nodes", site.lab.nodes["socks5"].draft() | {"group": "asia"})
        page.get_by_role("button", name="New group").click()
        form = page.get_by_role("dialog", name="New group")
        form.get_by_label("Name", exact=True).fill("office")
        picker = form.get_by_label("Add a member")
        for member in ("Interface:wan2", "Group_asia", "nowhere", "DIRECT"):
            picker.fill(member)
            page.keyboard.press("Escape")
            form.get_by_role("button", name="Add", exact=True).click()
        items = form.get_by_role("list", name="Members, in order").get_by_role("listitem")
        expect(items).to_contain_text(["wan2", "asia", "nowhere", "DIRECT"])
        form.get_by_role("button", name="Save").click()
        expect(form).to_contain_text("there is no node 'nowhere'")
        form.get_by_role("button", name="Remove nowhere").click()

        form.get_by_role("button", name="Move DIRECT up").click()
        expect(items).to_contain_text(["wan2", "DIRECT", "asia"])
        page.keyboard.press("Alt+ArrowUp")
        expect(items).to_contain_text(["DIRECT", "wan2", "asia"])
        expect(form.get_by_role("button", name="Move DIRECT down")).to_be_focused()
        page.keyboard.press("Alt+ArrowDown")
        expect(items).to_contain_text(["wan2", "DIRECT", "asia"])
        expect(form.get_by_role("status")).to_have_text("DIRECT is at place 2 of 3")

        form.get_by_label("Strategy").select_option("spread")
        form.get_by_label("Weight of Interface:wan2").fill("3")
        form.get_by_label("Nodes by name").fill("(")
        form.get_by_role("button", name="Save").click()
        expect(form).to_contain_text("must be a pattern of RE2")
        form.get_by_label("Nodes by name").fill("^hk")
        form.get_by_label("Back to a better member").select_option("after")
        form.get_by_label("Minutes").fill("7")
        assert serious(page) == []
        screenshot(page, f"group-dialog-{width}")
        form.get_by_role("button", name="Save").click()
        expect(form).to_be_hidden()
        saved = site.lab.api.ask("GET", "/ops/groups/office").body
        assert saved["members"] == ["Interface:wan2", "DIRECT", "Group_asia"]
        assert (saved["weights"], saved["failback"]) == ({"Interface:wan2": 3}, 7)

        card = page.get_by_role("region", name="office")
        expect(card.get_by_role("listitem")).to_contain_text(["wan2", "DIRECT", "socks5"])
        expect(card).to_contain_text("Clients spread by their addresses")
        assert serious(page) == []
        screenshot(page, f"groups-{width}")

        card.get_by_role("button", name="Edit the group office").click()
        form = page.get_by_role("dialog", name="Edit the group office")
        form.get_by_label("Strategy").select_option("sticky")
        rotation = form.get_by_label("Seconds until each client gets another member")
        rotation.fill("5")
        form.get_by_role("button", name="Save").click()
        expect(rotation).to_have_accessible_description(re.compile("from 60 to 2592000"))
        rotation.fill("3600")
        form.get_by_role("button", name="Save").click()
        expect(card).to_contain_text("The same member as long as it works")

        rule = {"ip": "10.77.0.99", "target_node": "Group_office"}
        site.lab.api.post("/rules", rule)
        card.get_by_role("button", name="Give all clients of the group office another").click()
        page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
        expect(page.get_by_role("status").last).to_contain_text("another member of group office")

        card.get_by_role("button", name="Delete the settings of the group office").click()
        page.get_by_role("button", name="Delete", exact=True).last.click()
        expect(card).to_be_hidden()
        page.get_by_role("status").get_by_role("button", name="Undo").click()
        expect(card).to_be_visible()
        card.get_by_role("button", name="Delete the settings of the group office").click()
        page.get_by_role("button", name="Delete", exact=True).last.click()
        expect(card).to_be_hidden()
        expect(page.get_by_role("region", name="asia")).to_be_visible()


def test_the_form_of_a_group_shows_what_another_has_changed(site: Site) -> None:
    ask, group = site.lab.api.ask, "/ops/groups/office"
    members = ["Interface:wan1", "Interface:wan2"]
    body = {"name": "office", "strategy": "fallback", "members": members}
    assert ask("POST", "/ops/groups", body).status == 201
    with site.visit("#/groups") as page:
        card = page.get_by_role("region", name="office")
        card.get_by_role("button", name="Edit the group office").click()
        form = page.get_by_role("dialog", name="Edit the group office")
        form.get_by_label("Open connections").select_option("cut")
        theirs = {"members": members[::-1], "on_switch": "drain"}
        assert ask("PATCH", group, theirs).status == 200
        form.get_by_role("button", name="Save").click()
        expect(form).to_contain_text("Changed by another session meanwhile, to “drain”")
        form.get_by_role("button", name="Save").click()
        expect(form).to_be_hidden()
        saved = ask("GET", group).body
        assert (saved["members"], saved["on_switch"]) == (members[::-1], "cut")
    assert ask("DELETE", group).status == 200

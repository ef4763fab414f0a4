"""Lists that several operators edit: the row that is seen is the one that is edited and deleted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from egressd_lab.device import rule_body
from tests.web.site import Site, hidden

pytestmark = [pytest.mark.lab, pytest.mark.browser]


@pytest.fixture
def four(site: Site) -> Iterator[Site]:
    """Yield a device with rules for 10.77.7.1 to .4."""
    with site.kept():
        for n in range(1, 5):
            rule = {"ip": ip(n), "target_node": "DIRECT", "comment": f"four {n}"}
            site.lab.api.post("/rules", rule)
        yield site


def ip(n: int) -> str:
    return f"10.77.7.{n}"


def rules(site: Site) -> dict[str, dict[str, Any]]:
    """Return the present rules, by address."""
    return {rule["ip"]: rule for rule in site.lab.api.get("/rules")["data"]}


def row(page: Page, n: int) -> Locator:
    return page.get_by_role("row").filter(has_text=ip(n))


def box(page: Page, n: int) -> Locator:
    return row(page, n).get_by_role("checkbox", name="Select this row")


def edit(page: Page, n: int) -> Locator:
    """Press a row's edit button, and return its form."""
    page.get_by_role("button", name=f"Edit the rule of {ip(n)}").click()
    return page.get_by_role("form")


def test_editing_another_row_opens_its_own_form(four: Site) -> None:
    with four.visit("#/rules?q=four") as page:
        edit(page, 4)
        form = edit(page, 2)
        expect(form).to_have_accessible_name(f"Edit the rule of {ip(2)}")
        form.get_by_label("Comment").fill("four changed")
        page.get_by_role("button", name="Add a rule").click()
        question = page.get_by_role("dialog", name="Discard your changes?")
        question.get_by_role("button", name="Cancel").click()
        expect(form.get_by_label("Comment")).to_have_value("four changed")
        form.get_by_role("button", name="Save").click()
        expect(form).to_have_count(0)
        # The table has the keyboard focus again.
        expect(page.get_by_role("grid", name="Rules")).to_be_focused()

        page.get_by_role("button", name="Add a rule").click()
        form = page.get_by_role("form", name="Add a rule")
        form.get_by_label("Client").fill(ip(9))
        form.get_by_label("Comment").fill("four and one")
        form.get_by_role("button", name="Save").click()
        # A new rule sends its client nowhere until its target is chosen.
        expect(form.get_by_label("Exit")).to_have_attribute("aria-invalid", "true")
        form.get_by_label("Exit").fill("DIRECT")
        page.keyboard.press("Tab")
        form.get_by_role("button", name="Save").click()
        expect(form).to_have_count(0)
    assert {host: rule["comment"] for host, rule in rules(four).items()} == {
        ip(1): "four 1",
        ip(2): "four changed",
        ip(3): "four 3",
        ip(4): "four 4",
        ip(9): "four and one",
    }


def test_a_form_stays_while_its_row_is_filtered_out_or_deleted(four: Site) -> None:
    with four.visit("#/rules?q=four") as page:
        form = edit(page, 3)
        form.get_by_label("Comment").fill("typed at length")
        page.get_by_label("Filter").fill("nothing like it")
        expect(row(page, 3)).to_have_count(0)
        four.lab.api.delete("/rules/batch", {"ips": [ip(3)]})
        expect(form.get_by_label("Comment")).to_have_value("typed at length")
        form.get_by_role("button", name="Save").click()
        expect(form.get_by_role("alert")).to_be_visible()
        expect(form.get_by_label("Comment")).to_have_value("typed at length")


def test_changes_by_others_to_a_row_are_kept(four: Site) -> None:
    with four.visit("#/rules?q=four") as page:
        form = edit(page, 1)
        form.get_by_label("Comment").fill("four mine")
        was = rules(four)[ip(1)]
        theirs = {"target_node": "REJECT", "comment": "four theirs", "is_enabled": False}
        four.lab.api.put(f"/rules/{was['id']}", {**rule_body(was), **theirs})
        expect(row(page, 1).first).to_contain_text("four theirs")
        form.get_by_role("button", name="Save").click()
        # The field that both have changed is shown first, and nothing is saved.
        expect(form.get_by_role("alert")).to_contain_text("to “four theirs”")
        assert rules(four)[ip(1)]["comment"] == "four theirs"
        form.get_by_role("button", name="Save").click()
        expect(form).to_have_count(0)
    now = rules(four)[ip(1)]
    assert (now["comment"], now["target_node"]) == ("four mine", "REJECT")
    assert not now["is_enabled"]


def test_renames_by_others_are_kept(four: Site) -> None:
    api = four.lab.api
    line = {"type": "l2tp", "name": "l2tp_a", "server": "192.0.2.99"}
    api.post("/vpn-lines", line | {"username": "office", "password": "correct horse"})
    was = rules(four)[ip(1)]
    api.put(f"/rules/{was['id']}", {**rule_body(was), "target_node": "Interface:l2tp_a"})
    with four.visit("#/rules?q=four") as page:
        expect(row(page, 1)).to_contain_text("l2tp_a")
        # The first time, the list may be loaded because the stream has begun.
        for old, new in (("l2tp_a", "l2tp_b"), ("l2tp_b", "l2tp_c")):
            four.rename_line(old, new)
            expect(row(page, 1)).to_contain_text(new)
        form = edit(page, 1)
        form.get_by_label("Comment").fill("four mine")
        # The new target stays even if the page has not been notified of it.
        with hidden(page):
            four.rename_line("l2tp_c", "l2tp_d")
            form.get_by_role("button", name="Save").click()
            expect(form).to_have_count(0)
    now = rules(four)[ip(1)]
    assert (now["comment"], now["target_node"]) == ("four mine", "Interface:l2tp_d")


def test_a_renamed_node_is_updated_in_every_form(four: Site) -> None:
    api = four.lab.api
    api.post("/nodes/import", {"type": "socks5", "text": "203.0.113.21,1080,u,old,first"})
    (node,) = [one for one in api.get("/nodes")["data"] if one["name"] == "first"]
    body = {field: node[field] for field in ("name", "protocol", "group", "config_json")}
    settings = api.ask("GET", "/ops/settings").body
    api.ask("PUT", "/ops/settings", {**settings, "unmanaged": "first"})
    api.put("/whitelist", {"domains": "listed.test", "ips": "", "node": "first"})
    with four.visit("#/settings") as page:
        unmanaged = page.get_by_label("Clients without a rule")
        expect(unmanaged).to_have_value("first")
        api.put(f"/nodes/{node['id']}", body | {"name": "second"})
        expect(unmanaged).to_have_value("second")
        page.get_by_role("link", name="Whitelist").click()
        leaves = page.get_by_label("Exit")
        expect(leaves).to_have_value("second")
        api.put(f"/nodes/{node['id']}", body | {"name": "third"})
        expect(leaves).to_have_value("third")

        page.get_by_role("link", name="Nodes").click()
        page.get_by_role("button", name="Edit third").click()
        form = page.get_by_role("form", name="Edit third")
        form.get_by_label("password").fill("new")
        # Another operator's change of the same text concerns another field.
        api.patch("/nodes/batch", {"ids": [node["id"]], "interface_name": "wan2"})
        expect(page.get_by_role("row").filter(has_text="third").first).to_contain_text("wan2")
        form.get_by_role("button", name="Save").click()
        expect(form).to_have_count(0)
    (node,) = [one for one in api.get("/nodes")["data"] if one["name"] == "third"]
    config = json.loads(node["config_json"])
    assert (config["password"], config["interface-name"]) == ("new", "wan2")


def test_changes_by_others_to_settings_are_kept(four: Site) -> None:
    api = four.lab.api
    with four.visit("#/settings") as page:
        unmanaged = page.get_by_label("Clients without a rule")
        expect(unmanaged).to_have_value("REJECT")
        interval = page.get_by_label(re.compile("^Interval of group checks"))
        interval.fill("77")
        settings = api.ask("GET", "/ops/settings").body
        api.ask("PUT", "/ops/settings", {**settings, "unmanaged": "DIRECT"})
        expect(unmanaged).to_have_value("DIRECT")
        expect(interval).to_have_value("77")
        page.get_by_role("region", name="Routing").get_by_role("button", name="Save").click()
        expect(page.get_by_text("settings saved").first).to_be_visible()
    changed = api.ask("GET", "/ops/settings").body
    assert changed == {**settings, "unmanaged": "DIRECT", "check_interval_s": 77}


def test_conflicting_settings_are_shown_before_they_are_saved(four: Site) -> None:
    api = four.lab.api
    settings = api.ask("GET", "/ops/settings").body
    with four.visit("#/settings") as page:
        routing = page.get_by_role("region", name="Routing")
        interval = page.get_by_label(re.compile("^Interval of group checks"))
        save = routing.get_by_role("button", name="Save")
        interval.fill("77")
        with hidden(page):
            api.ask("PUT", "/ops/settings", {**settings, "check_interval_s": 99})
            save.click()
            told = routing.get_by_role("alert").filter(has_text="Another session")
            expect(told).to_be_visible()
            # A later save by another operator is reported again.
            api.ask("PUT", "/ops/settings", {**settings, "check_interval_s": 98})
            with page.expect_response("**/ops/settings"):
                save.click()
            page.wait_for_timeout(300)
            expect(told).to_be_visible()
        assert api.ask("GET", "/ops/settings").body["check_interval_s"] == 98
        # A value that is in force already conflicts with nothing.
        interval.fill("98")
        expect(told).to_have_count(0)
        interval.fill("76")
        routing.get_by_role("button", name="Undo").click()
        expect(interval).to_have_value("98")
        interval.fill("77")
        expect(told).to_have_count(0)
        save.click()
        expect(page.get_by_text("settings saved").first).to_be_visible()
        expect(save).to_be_disabled()
        expect(save).to_be_focused()
    changed = api.ask("GET", "/ops/settings").body
    assert changed == {**settings, "check_interval_s": 77}


def leaving(page: Page) -> Locator:
    """Return the question that is asked before typed text is discarded."""
    return page.get_by_role("dialog", name="Discard your changes?")


def test_a_link_does_not_discard_typed_text(four: Site) -> None:
    with four.visit("#/rules?q=four") as page:
        link = page.get_by_role("navigation").get_by_role("link", name="Whitelist")
        link.click()
        domains = page.get_by_label("Domains")
        domains.fill("typed.test")
        page.go_back()
        leaving(page).get_by_role("button", name="Cancel").click()
        expect(page).to_have_url(re.compile("#/whitelist$"))
        expect(domains).to_have_value("typed.test")
        page.get_by_role("link", name="Rules").click()
        leaving(page).get_by_role("button", name="Discard").click()
        expect(page.get_by_role("heading", name="Rules")).to_be_visible()

        form = edit(page, 1)
        form.get_by_label("Comment").fill("four typed")
        page.get_by_label("Filter").fill(ip(1))
        link.click()
        leaving(page).get_by_role("button", name="Cancel").click()
        expect(form.get_by_label("Comment")).to_have_value("four typed")
        form.get_by_role("button", name="Save").click()
        expect(form).to_have_count(0)
        link.click()
        expect(domains).to_have_value("")


def test_a_selected_target_is_not_lost(four: Site) -> None:
    with four.visit("#/rules?q=four") as page:
        target = edit(page, 1).get_by_label("Exit")
        target.click()
        page.get_by_role("option", name="REJECT").click()
        page.keyboard.press("Escape")
        leaving(page).get_by_role("button", name="Cancel").click()
        expect(target).to_have_value("REJECT")


def test_a_bulk_edit_is_not_closed_by_accident(four: Site) -> None:
    with four.visit("#/rules?q=four") as page:
        page.get_by_label("Select all rows").check()
        page.get_by_role("button", name="Change…").click()
        dialog = page.get_by_role("dialog", name="Change 4 rules")
        dialog.get_by_label("Set the exit").check()
        for _ in range(3):
            page.keyboard.press("Escape")
            expect(leaving(page)).to_be_visible()
            page.keyboard.press("Escape")
            expect(leaving(page)).to_have_count(0)
            expect(dialog).to_be_visible()
        dialog.get_by_label("Set the exit").uncheck()
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)


def hold_changes(page: Page, url: str) -> list[Route]:
    """Return a list that collects PUT and PATCH requests to such addresses from now on, for the
    test to answer.
    """
    held: list[Route] = []

    def hold(route: Route) -> None:
        if route.request.method in ("PUT", "PATCH"):
            held.append(route)
        else:
            route.continue_()

    page.route(url, hold)
    return held


def test_an_error_is_shown_after_its_page_was_left(four: Site) -> None:
    with four.visit("#/whitelist") as page:
        held = hold_changes(page, "**/whitelist")
        page.get_by_label("Domains").fill("typed.test")
        with page.expect_request(lambda request: request.method == "PUT"):
            page.get_by_role("button", name="Save").click()
        page.get_by_role("navigation").get_by_role("link", name="Rules").click()
        leaving(page).get_by_role("button", name="Discard").click()
        expect(page.get_by_role("heading", name="Rules")).to_be_visible()
        held[0].fulfill(status=400, json={"error": "domains must be others"})
        expect(page.get_by_text("domains must be others")).to_be_visible()


def test_a_slow_save_does_not_affect_the_next_form(four: Site) -> None:
    with four.visit("#/rules?q=four") as page:
        held = hold_changes(page, "**/ops/rules/*")
        form = edit(page, 4)
        for n in (4, 3):
            form.get_by_label("Comment").fill(f"four typed {n}")
            with page.expect_request(lambda request: request.method == "PATCH"):
                form.get_by_role("button", name="Save").click()
            page.get_by_role("button", name=f"Edit the rule of {ip(n - 1)}").click()
            leaving(page).get_by_role("button", name="Discard").click()
            expect(form).to_have_accessible_name(f"Edit the rule of {ip(n - 1)}")
        form.get_by_label("Comment").fill("four typed 2")
        held[0].continue_()
        expect(row(page, 4)).to_contain_text("four typed 4")
        held[1].fulfill(status=400, json={"error": "comment must be another"})
        expect(page.get_by_text("comment must be another")).to_be_visible()
        expect(form.get_by_label("Comment")).to_have_value("four typed 2")


def test_disabling_many_rules_asks_for_confirmation(four: Site) -> None:
    with four.visit("#/rules?q=four") as page:
        page.get_by_label("Select all rows").check()
        disable = page.get_by_role("toolbar").get_by_role("button", name="Disable")
        question = page.get_by_role("dialog", name="Disable 4 selected rows?")
        disable.click()
        expect(question).to_contain_text("“Clients without a rule” applies")
        question.get_by_role("button", name="Cancel").click()
        assert all(rule["is_enabled"] for rule in rules(four).values())
        disable.click()
        question.get_by_role("button", name="Disable").click()
        expect(row(page, 4).get_by_role("switch")).not_to_be_checked()
        page.get_by_role("toolbar").get_by_role("button", name="Enable").click()
        expect(row(page, 4).get_by_role("switch")).to_be_checked()


def test_deleted_rows_can_be_taken_back(four: Site) -> None:
    before = rules(four)
    with four.visit("#/rules?q=four") as page:
        page.get_by_label("Select all rows").check()
        page.get_by_role("toolbar").get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(page.get_by_role("row")).to_have_count(1)
        assert ip(1) not in rules(four)
        page.get_by_role("status").get_by_role("button", name="Undo").click()
        expect(row(page, 4)).to_be_visible()
        assert rules(four) == before

        page.goto(page.url.partition("#")[0] + "#/overview")
        changes = page.get_by_role("region", name="Recent changes").get_by_role("listitem")
        expect(changes.nth(1)).to_contain_text("undone")
        changes.nth(0).get_by_role("button", name="Undo").click()
        question = page.get_by_role("dialog")
        expect(question).to_contain_text(f"Rule {ip(1)} is deleted")
        question.get_by_role("button", name="Undo").click()
        said = page.get_by_role("status").filter(has_text="undone: 4 rules deleted")
        expect(said).to_be_visible()
        assert ip(1) not in rules(four)


def test_a_replaced_list_can_be_taken_back(four: Site) -> None:
    before = rules(four)
    with four.visit("#/rules") as page:
        page.get_by_role("button", name="More").click()
        page.get_by_role("menuitem", name="Import").click()
        dialog = page.get_by_role("dialog", name="Import rules")
        dialog.get_by_role("textbox").fill(f"{ip(1)},REJECT,one")
        dialog.get_by_label("Replace the whole list").check()
        dialog.get_by_role("button", name="Import 1 row").click()
        page.get_by_role("button", name="Replace", exact=True).click()
        expect(dialog).to_be_hidden()
        assert [*rules(four)] == [ip(1)]
        page.get_by_role("status").get_by_role("button", name="Undo").click()
        expect(row(page, 4)).to_be_visible()
    assert rules(four) == before


def test_changes_on_trial_are_taken_back_or_kept(four: Site) -> None:
    with four.visit("#/rules?q=four") as page:
        banner = page.get_by_role("alert").filter(has_text="Changes are on trial")
        for end, is_there in (("Take them back", True), ("Keep the changes", False)):
            four.lab.device.run("trial", "start", "--minutes", "9")
            four.lab.api.delete("/rules/batch", {"ips": [ip(1)]})
            expect(row(page, 1)).to_have_count(0)
            banner.get_by_role("button", name=end).click()
            expect(banner).to_have_count(0)
            assert (ip(1) in rules(four)) == is_there
        expect(row(page, 1)).to_have_count(0)


def test_rows_are_sorted_on_a_phone(four: Site) -> None:
    with four.visit("#/rules?q=four", width=390) as page:
        first = page.get_by_role("row").nth(1)
        page.get_by_label("Sort by").select_option("Client")
        expect(first).to_contain_text(ip(1))
        page.get_by_role("button", name="Descending").click()
        expect(first).to_contain_text(ip(4))
        page.get_by_label("Sort by").select_option("Not sorted")
        expect(first).to_contain_text(ip(1))


def test_checkboxes_show_the_selection(four: Site) -> None:
    with four.visit("#/rules?q=four") as page:
        box(page, 2).click()
        expect(box(page, 2)).to_be_checked()
        expect(box(page, 1)).not_to_be_checked()
        box(page, 4).click(modifiers=["Shift"])
        expect(box(page, 3)).to_be_checked()
        everything = page.get_by_label("Select all rows")
        everything.check()
        box(page, 1).press("Space")
        expect(box(page, 1)).not_to_be_checked()
        expect(page.get_by_text("3 selected").first).to_be_visible()

        page.get_by_label("Filter").fill(ip(1))
        expect(page.get_by_text("3 of them are hidden by the filter")).to_be_visible()
        page.get_by_label("Filter").fill("four")
        page.get_by_role("button", name="Clear the selection").click()
        for n in range(1, 5):
            expect(box(page, n)).not_to_be_checked()

        everything.check()
        four.lab.api.delete("/rules/batch", {"ips": [ip(n) for n in range(1, 5)]})
        expect(page.get_by_role("toolbar")).to_have_count(0)


def test_the_keyboard_focus_stays_on_its_row(four: Site) -> None:
    with four.visit("#/rules?q=four") as page:
        grid = page.get_by_role("grid", name="Rules")
        grid.focus()
        for _ in range(3):
            page.keyboard.press("ArrowDown")
        four.lab.api.delete("/rules/batch", {"ips": [ip(1)]})
        expect(grid).to_have_attribute("aria-rowcount", "4")
        page.keyboard.press("Delete")
        expect(page.get_by_role("dialog", name=f"Delete the rule of {ip(3)}?")).to_be_visible()
        page.keyboard.press("Escape")
        expect(grid).to_be_focused()
        page.keyboard.press("Shift+ArrowDown")
        expect(page.get_by_text("2 selected").first).to_be_visible()
        page.keyboard.press("Shift+ArrowUp")
        expect(page.get_by_text("1 selected").first).to_be_visible()
        expect(box(page, 3)).to_be_checked()


def test_the_filter_follows_the_url(four: Site) -> None:
    with four.visit("#/rules?q=four+2") as page:
        grid = page.get_by_role("grid", name="Rules")
        expect(grid).to_have_attribute("aria-rowcount", "2")
        page.get_by_role("navigation").get_by_role("link", name="Rules").click()
        expect(page.get_by_label("Filter")).to_have_value("")
        expect(row(page, 4)).to_be_visible()
        page.go_back()
        expect(page.get_by_label("Filter")).to_have_value("four 2")

"""The rules page, with a real client behind it."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Route, expect

from egressd.model.wording import as_sentence, coded, say
from egressd_lab.spec import WEB_SERVERS
from tests.web.chromium import context, screenshot
from tests.web.site import URL, Site, hidden

pytestmark = [pytest.mark.lab, pytest.mark.browser]

SEEN_AT = f"http://{WEB_SERVERS[0]}/"


def test_an_edited_rule_moves_its_client(site: Site) -> None:
    lab = site.lab
    for kind in ("socks5", "http"):
        lab.api.post("/nodes", lab.nodes[kind].draft("pool"))
    client = lab.client(1)
    with site.visit("#/rules") as page:
        page.get_by_role("button", name="Add a rule").click()
        form = page.get_by_role("form", name="Add a rule")
        form.get_by_label("Client").fill(f"{client.address}/33")
        form.get_by_label("Exit").fill("nowhere")
        form.get_by_role("button", name="Save").click()
        # The device's own texts, each at its field.
        expect(form.get_by_label("Client")).to_have_accessible_description(
            "Client must be an IPv4 address or a CIDR without host bits"
        )
        assert form.get_by_label("Client").get_attribute("aria-invalid") == "true"
        screenshot(page, "rule-refused")

        form.get_by_label("Client").fill(client.address)
        form.get_by_label("Exit").click()
        page.get_by_role("option", name="socks5").click()
        form.get_by_label("Comment").fill("living room")
        form.get_by_role("button", name="Save").click()
        expect(form).to_have_count(0)
        expect(page.get_by_role("row").filter(has_text=client.address)).to_contain_text("socks5")
        assert client.http(SEEN_AT).seen == lab.nodes["socks5"].address

        page.get_by_role("row").filter(has_text=client.address).dblclick()
        form = page.get_by_role("form", name=f"Edit the rule of {client.address}")
        form.get_by_label("Exit").fill("http")
        page.get_by_role("option", name="http", exact=False).first.click()
        form.get_by_label("Download").fill("")
        form.get_by_label("Download").press_sequentially("5e4")  # half of it is no number
        form.get_by_role("button", name="Save").click()
        expect(page.get_by_role("row").filter(has_text=client.address)).to_contain_text("50 Mbit/s")
        assert client.http(SEEN_AT).seen == lab.nodes["http"].address

        page.get_by_role("switch", name=f"Rule of {client.address}").click()
        expect(page.get_by_role("switch", name=f"Rule of {client.address}")).not_to_be_checked()
        assert not client.http(SEEN_AT, timeout=2).ok


def test_rows_are_imported_filtered_sorted_and_changed_together(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "rules.tsv"
    file.write_text(
        "".join(f"10.77.1.{n}\tDIRECT\tseat-{n}\n" for n in range(1, 41)) + "10.77.2.9\tnobody\t\n"
    )
    with site.visit("#/rules") as page:
        page.get_by_role("button", name="More").click()
        page.get_by_role("menuitem", name="Import").click()
        dialog = page.get_by_role("dialog")
        dialog.locator("input[type=file]").set_input_files(file)
        expect(dialog.get_by_text("40 to import")).to_be_visible()
        expect(dialog.get_by_text("1 bad", exact=True)).to_be_visible()
        dialog.get_by_label("Bad rows only").check()
        expect(dialog.get_by_role("listitem")).to_have_count(1)
        expect(dialog.get_by_role("listitem")).to_contain_text("Exit must be")
        screenshot(page, "rules-import")
        assert not [r for r in site.lab.api.get("/rules")["data"] if r["ip"] == "10.77.1.1"]
        dialog.get_by_role("button", name="Import 40 rows").click()
        expect(dialog).to_have_count(0)

        page.get_by_label("Filter").fill("seat-1")
        grid = page.get_by_role("grid", name="Rules")
        expect(grid).to_have_attribute("aria-rowcount", "12")
        page.get_by_role("button", name="Comment").click()
        page.get_by_role("button", name="Comment").click()
        expect(page.get_by_role("columnheader", name="Comment")).to_have_attribute(
            "aria-sort", "descending"
        )
        expect(page.get_by_role("row").nth(1)).to_contain_text("seat-19")

        page.get_by_label("Select all rows").check()
        page.get_by_role("button", name="Change…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Set the exit").check()
        dialog.get_by_label("Exit", exact=True).fill("REJECT")
        page.keyboard.press("Tab")
        dialog.get_by_label("Set the upload limit").check()
        dialog.get_by_label("Upload limit", exact=True).fill("2000")
        dialog.get_by_label("Set the download limit").check()
        dialog.get_by_role("button", name="Save").click()
        question = page.get_by_role("dialog", name="Save what is left empty?")
        expect(question).to_contain_text("The download limits of 11 rules are removed.")
        question.get_by_role("button", name="Save").click()
        expect(page.get_by_role("row").filter(has_text="seat-19")).to_contain_text("2 Mbit/s")
        changed = [r for r in site.lab.api.get("/rules")["data"] if r["target_node"] == "REJECT"]
        assert len(changed) == 11

        with page.expect_download() as downloading:
            page.get_by_role("toolbar").get_by_role("button", name="Export").click()
        exported = Path(downloading.value.path()).read_text("utf-8-sig").splitlines()
        assert len(exported) == 11
        assert "10.77.1.19,REJECT,seat-19" in exported

        page.get_by_role("toolbar").get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        expect(grid).to_have_attribute("aria-rowcount", "1")
        assert not [r for r in site.lab.api.get("/rules")["data"] if r["target_node"] == "REJECT"]


def test_an_import_from_a_spreadsheet_is_not_lost_by_accident(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "rules.csv"
    # As a Chinese spreadsheet program saves it.
    file.write_bytes("10.77.1.200,DIRECT,客厅\n".encode("gbk") + b"bad\n" * 1200)
    with site.visit("#/rules") as page:
        page.get_by_role("button", name="More").click()
        page.get_by_role("menuitem", name="Import").click()
        dialog = page.get_by_role("dialog", name="Import rules")
        rows = dialog.get_by_label("Rows to import")
        dialog.locator("input[type=file]").set_input_files(file)
        expect(dialog.get_by_text("1,200 bad", exact=True)).to_be_visible()
        expect(dialog.get_by_text("0 existing", exact=True)).to_be_visible()
        expect(dialog.get_by_text("Only the first 1,000 bad rows are marked.")).to_be_visible()
        file.write_bytes("10.77.1.200,DIRECT,客厅\n".encode("gbk"))
        dialog.locator("input[type=file]").set_input_files(file)
        expect(rows).to_have_value("10.77.1.200,DIRECT,客厅\n")

        question = page.get_by_role("dialog", name="Close without importing?")
        for _ in range(3):
            page.keyboard.press("Escape")
            expect(question).to_be_visible()
            page.keyboard.press("Escape")
            expect(question).to_have_count(0)
            expect(rows).to_be_visible()
        dialog.get_by_role("button", name="Cancel").click()
        question.get_by_role("button", name="Close", exact=True).last.click()
        expect(dialog).to_have_count(0)


def test_notes_of_an_import_are_shown_at_their_rows(site: Site) -> None:
    with site.visit("#/rules") as page:
        page.get_by_role("button", name="More").click()
        page.get_by_role("menuitem", name="Import").click()
        dialog = page.get_by_role("dialog", name="Import rules")
        rows = dialog.get_by_label("Rows to import")
        # With nodes, the device returns such notes, depending on the engine in force.
        notes = [
            say("of-row", line=2, note=say("no-effect", key="of this row")),
            as_sentence("of them all"),
        ]
        told = {
            "imported": 2,
            "skipped": 0,
            "bad": 0,
            "bad_rows": [],
            "notes": notes,
            "notes_coded": msgspec.to_builtins([coded(note) for note in notes]),
        }
        page.route("**/ops/preview/rules", lambda route: route.fulfill(json=told))
        rows.fill("10.77.1.203,DIRECT\n10.77.1.204,DIRECT")
        items = dialog.get_by_role("list", name="Preview").get_by_role("listitem")
        expect(items.nth(1)).to_contain_text("of this row")
        expect(items.nth(0)).not_to_contain_text("of this row")
        expect(dialog.get_by_text("of them all", exact=True)).to_be_visible()
        expect(dialog.get_by_role("button", name="Import 2 rows")).to_be_enabled()
        rows.fill("")


def test_an_import_in_progress_cannot_be_left(site: Site) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    with site.visit("#/rules") as page:
        page.route("**/rules/import", hold)
        page.get_by_role("button", name="More").click()
        page.get_by_role("menuitem", name="Import").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Rows to import").fill("10.77.1.201,DIRECT,slow")
        dialog.get_by_role("button", name="Import 1 row").click()
        expect(dialog.get_by_role("button", name="Cancel")).to_be_disabled()
        page.keyboard.press("Escape")
        dialog.get_by_role("button", name="Close", exact=True).click()
        # No other question is shown beside it, and it stays.
        expect(dialog).to_have_accessible_name("Import rules")
        held[0].continue_()
        expect(dialog).to_have_count(0)


def test_an_export_names_what_its_format_cannot_express(site: Site) -> None:
    rules: dict[str, dict[str, object]] = {
        "10.77.5.1": {"is_enabled": True, "upload_limit_kbps": 500},
        "10.77.5.2": {"is_enabled": False},
    }
    for ip, more in rules.items():
        rule = {"ip": ip, "target_node": "DIRECT", "comment": "partly"}
        site.lab.api.post("/rules", rule | more)
    with site.visit("#/rules?q=partly") as page:
        expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "3")
        page.get_by_role("button", name="More").click()
        with page.expect_download() as downloading:
            page.get_by_role("menuitem", name="Export").click()
        # With the byte order mark by which spreadsheets recognise UTF-8.
        assert Path(downloading.value.path()).read_text("utf-8").splitlines() == [
            "\ufeff10.77.5.1,DIRECT,partly",
            "# 10.77.5.2,DIRECT,partly",
        ]
        said = page.get_by_role("status").filter(has_text="backup")
        expect(said).to_contain_text("1 disabled row is written as a comment")
        expect(said).to_contain_text("does not contain the limits and the MAC of 1 rule.")


def test_a_completely_typed_target_is_selected(site: Site) -> None:
    exact = {"name": "exact", "protocol": "socks5", "group": "not exact"}
    config = {"server": "203.0.113.7", "port": 1080}
    site.lab.api.post("/nodes", {**exact, "config_json": json.dumps(config)})
    with site.visit("#/rules") as page:
        page.get_by_role("button", name="Add a rule").click()
        form = page.get_by_role("form", name="Add a rule")
        target = form.get_by_label("Exit")
        target.fill("exac")
        expect(page.get_by_role("option")).to_have_count(2)
        target.press_sequentially("t")
        target.press("Enter")
        expect(target).to_have_value("exact")

        # Escape closes the topmost element, one at a time.
        target.click()
        expect(page.get_by_role("listbox")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("listbox")).to_have_count(0)
        expect(target).to_have_value("exact")
        # The key alone does not discard typed text.
        question = page.get_by_role("dialog", name="Discard your changes?")
        page.keyboard.press("Escape")
        expect(question).to_be_visible()
        page.keyboard.press("Escape")
        expect(question).to_have_count(0)
        expect(target).to_have_value("exact")
        target.press("Escape")
        question.get_by_role("button", name="Discard").click()
        expect(form).to_have_count(0)

        site.lab.api.post("/rules", {"ip": "10.77.5.9", "target_node": "DIRECT"})
        page.get_by_label("Filter").fill("10.77.5.9")
        expect(page.get_by_role("grid")).to_have_attribute("aria-rowcount", "2")
        page.get_by_label("Select all rows").check()
        page.get_by_role("button", name="Change…").click()
        dialog = page.get_by_role("dialog")
        dialog.get_by_label("Set the exit").check()
        dialog.get_by_label("Exit", exact=True).click()
        expect(page.get_by_role("listbox")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("listbox")).to_have_count(0)
        expect(dialog).to_be_visible()


def test_unselected_limits_are_not_sent(site: Site) -> None:
    site.lab.api.post("/rules", {"ip": "10.77.5.10", "target_node": "DIRECT"})
    with site.visit("#/rules?q=10.77.5.10") as page:
        page.get_by_role("checkbox", name="Select this row").check()
        page.get_by_role("button", name="Change…").click()
        dialog = page.get_by_role("dialog")
        upload = dialog.get_by_label("Set the upload limit")
        upload.check()
        dialog.get_by_label("Upload limit", exact=True).fill("99999999")
        upload.uncheck()
        dialog.get_by_label("Set the download limit").check()
        dialog.get_by_label("Download limit", exact=True).fill("3000")
        dialog.get_by_role("button", name="Save").click()
        expect(dialog).to_have_count(0)
        expect(page.get_by_role("row").nth(1)).to_contain_text("3 Mbit/s")


def test_the_link_to_a_targets_rules_filters_them(site: Site) -> None:
    api = site.lab.api
    name = 'far "away"'
    config = json.dumps({"server": "203.0.113.8", "port": 1080, "interface-name": "wan9"})
    for node in (name, f"{name} 2"):
        api.post("/nodes", {"name": node, "protocol": "socks5", "config_json": config})
    rules: dict[str, dict[str, object]] = {
        "10.77.6.1": {"target_node": name},
        "10.77.6.2": {"target_node": name, "is_enabled": False},
        "10.77.6.3": {"target_node": f"{name} 2"},
        "10.77.6.4": {"target_node": "DIRECT", "comment": name},
    }
    for ip, rule in rules.items():
        api.post("/rules", {"ip": ip, **rule})
    with site.visit("#/nodes?q=far") as page:
        failing = page.get_by_role("row").filter(has_text="there is no interface wan9")
        expect(failing).to_have_count(2)
        page.get_by_role("row").filter(has_text="away").first.get_by_role("link").click()
        found = page.get_by_role("row").filter(has_text="10.77.6.")
        expect(found).to_have_count(2)
        expect(found.first).to_contain_text("10.77.6.1")
        expect(found.last).to_contain_text("10.77.6.2")
        page.get_by_label("Filter").fill("away is:off")
        expect(found).to_have_count(1)
        expect(found).to_contain_text("10.77.6.2")
        page.get_by_label("Filter").fill("away is:blocked")
        expect(found).to_have_count(2)
        expect(found.last).to_contain_text("10.77.6.3")


def test_a_target_is_found_by_its_whole_name_or_the_bare_one(site: Site) -> None:
    api = site.lab.api
    config = json.dumps({"server": "203.0.113.8", "port": 1080})
    node = {"protocol": "socks5", "config_json": config}
    api.post("/nodes", {"name": "us-1", "group": "us", **node})
    targets = ("Group_us", "us-1", "Interface:wan2", "DIRECT")
    for place, target in enumerate(targets, start=1):
        api.post("/rules", {"ip": f"10.77.8.{place}", "target_node": target, "comment": "us wan2"})
    found = {"Group_us": 1, "us": 1, "us-1": 2, "Interface:wan2": 3, "wan2": 3, "DIRECT": 4}
    with site.visit("#/rules") as page:
        rows = page.get_by_role("row").filter(has_text="10.77.8.")
        for typed, place in found.items():
            page.get_by_label("Filter").fill(f"10.77.8. target:{typed}")
            expect(rows).to_have_count(1)
            expect(rows).to_contain_text(f"10.77.8.{place}")


def test_the_table_is_operated_with_the_keyboard(site: Site) -> None:
    site.lab.api.post("/rules", {"ip": "10.77.3.1", "target_node": "DIRECT", "comment": "keys"})
    site.lab.api.post("/rules", {"ip": "10.77.3.2", "target_node": "DIRECT", "comment": "keys"})
    with site.visit("#/rules?q=keys") as page:
        grid = page.get_by_role("grid", name="Rules")
        expect(grid).to_have_attribute("aria-rowcount", "3")
        page.keyboard.press("/")
        expect(page.get_by_label("Filter")).to_be_focused()
        grid.focus()
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Space")
        expect(page.get_by_text("1 selected").first).to_be_visible()
        page.keyboard.press("Shift+ArrowDown")
        expect(page.get_by_text("2 selected").first).to_be_visible()
        page.keyboard.press("Enter")
        expect(page.get_by_role("form", name="Edit the rule of 10.77.3.2")).to_be_visible()
        expect(page.get_by_label("Client")).to_be_focused()
        page.keyboard.press("Escape")
        expect(page.get_by_role("form")).to_have_count(0)
        grid.focus()
        page.keyboard.press("Delete")
        expect(page.get_by_role("dialog", name="Delete 2 rules?")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)


def test_rules_are_requested_before_the_page_is_loaded(site: Site) -> None:
    site.lab.api.post("/rules", {"ip": "10.77.4.1", "target_node": "DIRECT"})
    made = context(site.browser, state=site.state)
    page = made.new_page()
    held: list[Route] = []
    asked: list[str] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/assets/page-*.js", hold)
    page.on("request", lambda request: asked.append(request.url.removeprefix(URL)))
    with page.expect_response("**/ops/rules?since=0") as answered:
        page.goto(URL + "#/rules?q=10.77.4.1", wait_until="commit")
    assert answered.value.header_value("content-encoding") == "gzip"
    assert page.get_by_role("grid").count() == 0
    assert len(held) == 1
    held[0].continue_()
    expect(page.get_by_role("row").filter(has_text="10.77.4.1")).to_be_visible()
    # Early requests are not repeated.
    assert [asked.count(path) for path in ("ops/rules?since=0", "console/session")] == [1, 1]
    made.close()


def test_changes_by_others_appear_without_a_reload(site: Site) -> None:
    with site.visit("#/rules?q=10.77.9.9") as page:
        grid = page.get_by_role("grid", name="Rules")
        expect(grid).to_have_attribute("aria-rowcount", "1")
        site.lab.api.post("/rules", {"ip": "10.77.9.9", "target_node": "DIRECT"})
        expect(grid).to_have_attribute("aria-rowcount", "2")

        # A hidden page receives no events, and catches up when it is seen again.
        with hidden(page):
            site.lab.api.post("/rules", {"ip": "10.77.9.99", "target_node": "DIRECT"})
            page.wait_for_timeout(1500)
            expect(grid).to_have_attribute("aria-rowcount", "2")
        expect(grid).to_have_attribute("aria-rowcount", "3")

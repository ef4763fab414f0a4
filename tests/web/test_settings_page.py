"""The pages of the whitelist, the API and the settings, against a real device."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Route, expect

from egressd.model.faults import fault
from egressd.model.problem import problem
from egressd_lab.spec import WEB_SERVERS
from tests.web.site import Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]

SEEN_AT = f"http://{WEB_SERVERS[0]}/"


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


def test_removed_entries_of_the_whitelist_can_be_taken_back(tidy: Site) -> None:
    api = tidy.lab.api
    api.put("/whitelist", {"domains": "one.test\ntwo.test", "ips": "", "node": "DIRECT"})
    with tidy.visit("#/whitelist") as page:
        domains = page.get_by_label("Domains")
        expect(domains).to_have_value("one.test\ntwo.test")
        domains.fill("two.test")
        page.get_by_role("button", name="Save").click()
        saved = page.get_by_role("status").filter(has_text="whitelist saved")
        saved.get_by_role("button", name="Undo").click()
        expect(domains).to_have_value("one.test\ntwo.test")
    assert api.get("/whitelist")["domains"] == "one.test\ntwo.test"


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
        restored = page.get_by_role("status").filter(has_text="backup")
        restored.get_by_role("button", name="Undo").click()
        expect(page.get_by_role("status").filter(has_text="undone")).to_be_visible()
        assert [r for r in served.lab.api.get("/rules")["data"] if r["ip"] == "10.77.8.8"]

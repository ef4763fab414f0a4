"""Scoped tokens on the page of the API's settings."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect

from tests.web.axe import serious
from tests.web.chromium import screenshot
from tests.web.site import URL, Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]

CALL = """([path, token]) => fetch(path, {
  headers: {authorization: `Bearer ${token}`}, credentials: "omit",
}).then((answer) => answer.status)"""
"""A request of a program, which has a token and no session."""


def status(page: Page, path: str, token: str) -> int:
    answered: int = page.evaluate(CALL, [path, token])
    return answered


def test_a_token_is_made_shown_once_used_and_deleted(site: Site) -> None:
    with site.visit("#/api") as page:
        card = page.get_by_role("region", name="Tokens for programs")
        expect(card).to_contain_text("There is no such token yet.")
        card.get_by_role("button", name="New token").click()
        form = page.get_by_role("dialog", name="New token")
        form.get_by_label("Name").fill("grafana")
        form.get_by_label("read the metrics").check()
        form.get_by_label("read everything but").uncheck()
        assert serious(page) == []
        screenshot(page, "new-token")
        form.get_by_role("button", name="Save").click()

        shown = page.get_by_role("dialog", name="Token grafana")
        token = shown.locator("code").inner_text()
        assert token.startswith("egressd_")
        assert serious(page) == []
        expect(shown.get_by_role("button", name="Copy the token")).to_be_visible()
        shown.get_by_role("button", name="Close").last.click()
        expect(card.get_by_role("listitem")).to_contain_text("grafana")
        expect(card.get_by_role("listitem")).to_contain_text("never used")

        assert status(page, "/ops/metrics", token) == 200
        assert status(page, "/ops/overview", token) == 403
        page.reload()
        expect(card.get_by_role("listitem")).to_contain_text("last used")
        assert token not in page.content()
        assert serious(page) == []
        screenshot(page, "tokens")

        card.get_by_role("button", name="New token").click()
        form.get_by_label("Name").fill("grafana")
        form.get_by_role("button", name="Save").click()
        expect(form.get_by_role("alert")).to_contain_text("there is a token grafana already")
        form.get_by_role("button", name="Cancel").click()
        page.get_by_role("alertdialog").or_(page.get_by_role("dialog").last).get_by_role(
            "button", name="Discard"
        ).click()

        card.get_by_role("button", name="Delete the token grafana").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
        expect(card).to_contain_text("There is no such token yet.")
        assert status(page, "/ops/metrics", token) == 401


def test_a_link_is_shown_once_and_rotates_by_its_button(site: Site) -> None:
    with site.kept(), site.visit("#/api") as page:
        site.lab.api.ask("POST", "/ops/groups", {"name": "office", "strategy": "sticky"})
        site.lab.api.ask("PATCH", "/ops/groups/office", {"members": ["DIRECT", "Interface:wan2"]})
        rule = {"ip": "10.77.6.11", "target_node": "Group_office"}
        site.lab.api.post("/rules", rule)
        card = page.get_by_role("region", name="Tokens for programs")
        card.get_by_role("button", name="New token").click()
        form = page.get_by_role("dialog", name="New token")
        form.get_by_label("Name").fill("phones")
        form.get_by_label("Or a link that rotates").fill("Group_office")
        assert serious(page) == []
        form.get_by_role("button", name="Save").click()
        shown = page.get_by_role("dialog", name="Token phones")
        link = shown.locator("code").inner_text()
        expect(shown.get_by_role("button", name="Copy the link")).to_be_visible()
        screenshot(page, "new-link")

        page.goto(link)
        expect(page.get_by_role("heading")).to_contain_text("all clients of the group office")
        assert serious(page) == []
        screenshot(page, "rotation-link")
        page.get_by_role("button", name="Rotate all clients").click()
        expect(page.get_by_role("heading")).to_contain_text("Clients with another member: 1")
        assert serious(page) == []
        (token,) = site.lab.api.ask("GET", "/ops/tokens").body["data"]
        site.lab.api.ask("DELETE", f"/ops/tokens/{token['id']}")
        page.reload()
        expect(page.get_by_role("heading")).to_have_text("It did not work")


def made_link(site: Site, target: str) -> str:
    """Make a link that rotates a target, and return its path."""
    body = {"name": "phones", "scopes": [f"rotate:{target}"]}
    return str(site.lab.api.ask("POST", "/ops/tokens", body).body["link"])


@contextmanager
def no_tokens_left(site: Site) -> Iterator[None]:
    """Remove all tokens after the block."""
    try:
        yield
    finally:
        for token in site.lab.api.ask("GET", "/ops/tokens").body["data"]:
            site.lab.api.ask("DELETE", f"/ops/tokens/{token['id']}")


def test_a_phone_opens_a_link_and_gets_another_member(site: Site) -> None:
    phone = site.lab.client(3).address
    with site.kept(), no_tokens_left(site), site.visit() as page:
        members = ["DIRECT", "Interface:wan2"]
        group = {"name": "own", "strategy": "sticky", "members": members}
        assert site.lab.api.ask("POST", "/ops/groups", group).status == 201
        site.lab.api.post("/rules", {"ip": phone, "target_node": "Group_own"})
        page.goto(URL.rstrip("/") + made_link(site, "Group_own"))
        expect(page.get_by_role("heading")).to_have_text("Another exit for this device")
        (before,) = [each for each in members if page.get_by_text(each, exact=True).count()]
        (after,) = {*members} - {before}
        expect(page.get_by_text(phone, exact=True)).to_be_visible()
        page.get_by_role("button", name="Rotate").click()
        expect(page.get_by_role("heading")).to_have_text("Done", timeout=30_000)
        expect(page.get_by_text(after, exact=True)).to_be_visible()
        assert serious(page) == []
        screenshot(page, "rotation-link-phone")
        page.get_by_role("button", name="Rotate again").click()
        expect(page.get_by_text(before, exact=True)).to_be_visible()


def test_the_link_of_a_node_shows_its_exit_while_it_changes(site: Site) -> None:
    with site.kept(), no_tokens_left(site), site.visit() as page:
        made = site.lab.api.post("/nodes", site.lab.nodes["ss"].draft() | {"name": "phone"})
        fields = {"change_ip_url": "https://seller.example/change?key=4711"}
        assert site.lab.api.ask("PATCH", f"/ops/nodes/{made['id']}", fields).status == 200
        page.goto(URL.rstrip("/") + made_link(site, "phone"))
        heading = page.get_by_role("heading")
        expect(heading).to_have_text("Another exit for the node phone")
        expect(page.get_by_text("All clients of the node leave by it.")).to_be_visible()
        page.get_by_role("button", name="Rotate").click()
        expect(heading).to_contain_text("The node is changing its exit")
        assert serious(page) == []
        screenshot(page, "rotation-link-node")
        expect(page.get_by_role("button")).to_have_count(0)
        # The page asks again by itself.
        with page.expect_response(lambda answer: "/ops/rotate/" in answer.url) as again:
            pass
        assert again.value.request.method == "GET"
        expect(heading).to_contain_text("The node is changing its exit")


def test_the_record_of_changes_names_the_token(site: Site) -> None:
    made = site.lab.api.ask("POST", "/ops/tokens", {"name": "deploy 1", "scopes": ["write"]})
    with site.visit("#/overview") as page:
        body = '{"ip": "10.77.6.9", "target_node": "DIRECT"}'
        done = page.evaluate(
            """([token, body]) => fetch("/svc/api/v1/rules", {
              method: "POST", body, credentials: "omit",
              headers: {authorization: `Bearer ${token}`, "content-type": "application/json"},
            }).then((answer) => answer.status)""",
            [made.body["token"], body],
        )
        assert done == 200
        changes = page.get_by_role("region", name="changes")
        expect(changes).to_contain_text("token deploy 1")
    site.lab.api.ask("DELETE", f"/ops/tokens/{made.body['id']}")

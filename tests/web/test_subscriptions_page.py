"""The page of subscriptions."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from tests.support.device import rule
from tests.support.lists import NAME, PORT, ListServer, entry, list_server
from tests.web.axe import serious
from tests.web.chromium import screenshot
from tests.web.site import Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]

LISTS = "/ops/subscriptions"


@pytest.fixture(scope="module")
def lists(site: Site) -> Iterator[ListServer]:
    with list_server(site.lab) as server:
        yield server


@pytest.fixture
def clean(site: Site) -> Iterator[None]:
    """Remove all subscriptions with their nodes, and rules, afterwards."""
    with site.kept():
        yield
        for each in site.lab.api.ask("GET", LISTS).body["data"]:
            site.lab.api.ask("DELETE", f"{LISTS}/{each['id']}?nodes=true")


def names(site: Site) -> set[str]:
    return {each["name"] for each in site.lab.api.get("/nodes")["data"]}


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_subscription_is_made_refreshed_and_deleted(
    site: Site, lists: ListServer, width: int
) -> None:
    lab = site.lab
    with site.visit("#/nodes") as nodes, site.visit("#/subscriptions", width=width) as page:
        expect(page.get_by_text("There is no subscription yet.")).to_be_visible()
        page.get_by_role("button", name="Add the first one").click()
        form = page.get_by_role("dialog", name="New subscription")
        save = form.get_by_role("button", name="Save")
        form.get_by_label("Name", exact=True).fill("seller")
        form.get_by_label("URL of the list").fill("http://10.77.0.1/x")
        expect(form.get_by_label("Exit")).to_have_value("")
        form.get_by_label("Exit").fill("DIRECT")
        page.keyboard.press("Tab")
        form.get_by_label("No nodes whose names have").fill("expire")
        form.get_by_role("button", name="Add: Pattern").click()
        form.get_by_label("Pattern 1", exact=True).fill("(")
        form.get_by_label("Text instead 1", exact=True).fill("s-")
        form.get_by_role("button", name="Add: Field").click()
        form.get_by_label("Field 1", exact=True).fill("X-Key")
        form.get_by_label("Value 1", exact=True).fill("h3ader")
        form.get_by_label("Enabled").uncheck()
        save.click()
        expect(form).to_contain_text("must not lead to this device or into a LAN")
        expect(form).to_contain_text("must be a pattern of RE2")
        form.get_by_label("URL of the list").fill(f"http://{NAME}:{PORT}/get?token=s3cret")
        form.get_by_label("Pattern 1", exact=True).fill("^")
        assert serious(page) == []
        screenshot(page, f"new-subscription-{width}")
        save.click()
        expect(form).to_be_hidden()
        row = page.get_by_role("row").filter(has_text="seller")
        expect(row).to_contain_text(f"{NAME}:{PORT}")
        expect(row).to_contain_text("not yet")

        preview = row.get_by_role("button", name="Preview a refresh of seller")
        seen = page.get_by_role("dialog", name="Refresh seller")
        now = seen.get_by_role("button", name="Refresh now")
        listed = entry(lab, "a", "socks5")
        used = "upload=1; download=4; total=10; expire=4070908800"
        lists.serve(listed, entry(lab, "expire: never", "http"), **{"subscription-userinfo": used})
        preview.click()
        expect(seen).to_contain_text("1 added")
        expect(seen).to_contain_text("s-a")
        expect(seen).to_contain_text("its name matches exclude")
        assert serious(page) == []
        screenshot(page, f"refresh-preview-{width}")
        assert "s-a" not in names(site)
        now.click()
        expect(seen).to_be_hidden()
        expect(page.get_by_role("status").last).to_contain_text("1 added, 0 changed, 0 gone")
        expect(row).to_contain_text("50 % of 10 B")
        expect(row).to_contain_text("until Jan 1, 2099")
        # Another session's list of nodes has it, too.
        expect(nodes.get_by_role("row").filter(has_text="s-a")).to_be_visible()

        lists.answer(status=404)
        preview.click()
        expect(seen.get_by_role("alert")).to_contain_text("Nothing is changed:")
        lists.serve(listed | {"password": "another"})
        seen.get_by_role("button", name="Try again").click()
        expect(seen).to_contain_text("1 changed")
        expect(seen.get_by_role("listitem")).to_have_text(re.compile(r"s-a\s+password"))
        lists.answer(body="<html>")
        now.click()
        expect(seen.get_by_role("alert")).to_contain_text("Nothing is changed:")
        seen.get_by_role("button", name="Cancel").click()
        expect(row).to_contain_text("Failed")
        assert "s-a" in names(site)

        rule(lab, "10.77.0.99", "s-a")
        lists.serve(entry(lab, "b", "http"))
        preview.click()
        expect(seen).to_contain_text("1 gone, kept and blocked")
        now.click()
        expect(row).to_contain_text("1 gone")
        expect(row).not_to_contain_text("Failed")
        screenshot(page, f"subscriptions-{width}")
        assert serious(page) == []

        row.get_by_role("button", name="Edit the subscription seller").click()
        form = page.get_by_role("dialog", name="Edit the subscription seller")
        expect(form.get_by_label("URL of the list")).to_have_value("")
        expect(form.get_by_label("Replace all header fields (X-Key)")).not_to_be_checked()
        agent = form.get_by_label("User-Agent")
        agent.fill("mine")
        form.get_by_label("Group", exact=True).fill("asia")
        (stored,) = lab.api.ask("GET", LISTS).body["data"]
        path = f"{LISTS}/{stored['id']}"
        lab.api.ask("PATCH", path, {"user_agent": "theirs", "interval_s": 3600})
        form.get_by_role("button", name="Save").click()
        expect(agent).to_have_accessible_description(re.compile("to “theirs”"))
        form.get_by_role("button", name="Save").click()
        expect(form).to_be_hidden()
        saved = lab.api.ask("GET", path).body
        assert (saved["user_agent"], saved["interval_s"]) == ("mine", 3600)
        assert (saved["group"], saved["header_names"]) == ("asia", ["X-Key"])
        assert {"s3cret", "h3ader"}.isdisjoint(re.findall(r"s3cret|h3ader", page.content()))

        row.get_by_role("button", name="Delete the subscription seller").click()
        question = page.get_by_role("dialog", name="Delete the subscription seller")
        expect(question.get_by_label("Keep its 2 nodes as your own")).to_be_checked()
        question.get_by_label("Remove its 2 nodes, too").check()
        expect(question).to_contain_text("Rules that name removed nodes block")
        assert serious(page) == []
        question.get_by_role("button", name="Delete", exact=True).click()
        expect(page.get_by_text("There is no subscription yet.")).to_be_visible()
        assert names(site).isdisjoint({"s-a", "s-b"})


@pytest.mark.usefixtures("clean")
def test_nodes_of_a_deleted_subscription_can_stay(site: Site, lists: ListServer) -> None:
    lab = site.lab
    lists.serve(entry(lab, "a", "socks5"))
    body = {"name": "seller", "url": f"http://{NAME}:{PORT}/list", "is_enabled": False}
    number = lab.api.ask("POST", LISTS, body).body["id"]
    with site.visit("#/subscriptions") as page:
        row = page.get_by_role("row").filter(has_text="seller")
        expect(row).to_contain_text("not yet")
        # What another session does is shown at once.
        lab.api.ask("POST", f"{LISTS}/{number}/refresh", {})
        expect(row).not_to_contain_text("not yet")
        page.evaluate("location.hash = '#/nodes'")
        page.get_by_role("button", name="Edit a", exact=True).click()
        form = page.get_by_role("form", name="Edit a", exact=True)
        expect(form).to_contain_text("It comes from a subscription")
        assert serious(page) == []
        screenshot(page, "node-of-a-subscription")
        form.get_by_role("link", name="Subscriptions").click()
        row.get_by_role("button", name="Delete the subscription seller").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
        expect(page.get_by_text("There is no subscription yet.")).to_be_visible()
        assert "a" in names(site)


@pytest.mark.usefixtures("clean")
def test_a_form_tells_that_another_may_have_set_the_url(site: Site) -> None:
    ask = site.lab.api.ask
    body = {"name": "seller", "url": f"http://{NAME}:{PORT}/theirs", "is_enabled": False}
    path = f"{LISTS}/{ask('POST', LISTS, body).body['id']}"
    with site.visit("#/subscriptions") as page:
        with page.expect_response(f"**{path}"):
            page.get_by_role("button", name="Edit the subscription seller").click()
        form = page.get_by_role("dialog", name="seller")
        form.get_by_label("URL of the list").fill(f"http://{NAME}:{PORT}/mine")
        form.get_by_role("button", name="Add: Field").click()
        form.get_by_label("Field 1", exact=True).fill("X-Key")
        assert ask("PATCH", path, {"headers": {"X-Key": "theirs"}}).status == 200
        form.get_by_role("button", name="Save").click()
        expect(form.get_by_text("perhaps with another value here")).to_have_count(2)
        form.get_by_role("button", name="Save").click()
        expect(form).to_be_hidden()
    saved = ask("GET", path).body
    assert saved["header_names"] == ["X-Key"]


def test_the_palette_opens_the_form_of_a_new_subscription(site: Site) -> None:
    with site.visit("#/overview") as page:
        # The key means nothing before the page is there.
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        page.keyboard.press("Control+k")
        page.get_by_role("combobox", name="Find or do").fill("new subscription")
        expect(page.get_by_role("option", selected=True)).to_contain_text("New subscription")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog", name="New subscription")).to_be_visible()
        expect(page.get_by_role("heading", level=1)).to_have_text("Subscriptions")

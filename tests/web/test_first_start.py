"""The way in: setup code, password, login, logout, and what happens when a session ends."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.web.chromium import context, screenshot
from tests.web.site import PASSWORD, URL, Site, watched

pytestmark = [pytest.mark.lab, pytest.mark.browser]


def test_the_first_start_needs_the_code_and_two_equal_passwords(fresh_site: Site) -> None:
    page = context(fresh_site.browser).new_page()
    complaints = watched(page)
    page.goto(URL)
    expect(page.get_by_role("heading", name="Welcome")).to_be_visible()
    screenshot(page, "first-start")
    expect(page.get_by_label("Setup code")).to_be_focused()
    page.get_by_label("Setup code").fill("AAAA-BBBB-CCCC")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("Password again").fill("something else")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_text("The two passwords differ.")).to_be_visible()

    page.get_by_label("Password again").fill(PASSWORD)
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("alert").filter(has_text="code")).to_be_visible()

    # As people type it: the device does not mind.
    page.get_by_label("Setup code").fill(fresh_site.setup_code().lower().replace("-", " "))
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()

    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    expect(page.get_by_label("Password", exact=True)).to_be_focused()
    # A guess that nobody made would count as well.
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.get_by_role("button", name="Log in").click()
    page.wait_for_timeout(300)
    assert not [url for url in sent if url.endswith("/console/login")]
    page.get_by_label("Password", exact=True).fill("not this one at all")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("password")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert complaints == []
    fresh_site.keep(page.context)
    page.context.close()


def test_a_revoked_session_is_shown_the_login(fresh_site: Site) -> None:
    other = context(fresh_site.browser).new_page()
    other.goto(URL)
    other.get_by_label("Password", exact=True).fill(PASSWORD)
    other.get_by_role("button", name="Log in").click()
    other.goto(URL + "#/rules")
    expect(other.get_by_role("heading", name="Rules")).to_be_visible()

    with fresh_site.visit("#/settings") as page:
        sessions = page.get_by_role("region", name="Sessions")
        sessions.get_by_role("button", name="Revoke all others").click()
        expect(sessions.get_by_role("button", name="Revoke")).to_have_count(0)
    # The stream ends with the session; nobody has to click anything.
    expect(other.get_by_role("heading", name="Log in")).to_be_visible(timeout=15_000)
    other.context.close()

"""The way in: setup code, password, login, logout, and the end of a session."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Dialog, Page, Route, expect

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
    expect(page.get_by_role("button", name="Log in with the password")).to_have_count(0)
    page.get_by_label("Setup code").fill("AAAA-BBBB-CCCC")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("Password again").fill("something else")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_text("The two passwords differ.")).to_be_visible()

    page.get_by_label("Password again").fill(PASSWORD)
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("alert").filter(has_text="code")).to_be_visible()

    # As users type it: the device accepts it.
    page.get_by_label("Setup code").fill(fresh_site.setup_code().lower().replace("-", " "))
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    readiness = page.get_by_role("region", name="Readiness")
    expect(readiness).to_contain_text("no DHCP server runs here")
    # No client has a rule: that is no good news.
    blocked = page.get_by_role("region", name="Problems")
    expect(blocked).to_contain_text("No rule is enabled, and clients without a rule are blocked.")
    expect(blocked).to_contain_text(re.compile(r"\d+ clients? (is|are) in the LAN\."))
    expect(blocked.get_by_role("link", name="Add the first rule")).to_be_visible()
    expect(blocked).not_to_contain_text("no known problems")

    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    expect(page.get_by_label("Password", exact=True)).to_be_focused()
    # An empty guess would be counted as well.
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


def test_a_lost_answer_can_be_retried(fresh_site: Site) -> None:
    code = fresh_site.lab.device.run("console", "code").strip()
    page = context(fresh_site.browser).new_page()
    page.goto(URL)
    page.get_by_label("Setup code").fill(code)
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("Password again").fill(PASSWORD)
    page.route("**/console/session", lambda route: route.abort())
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("alert")).to_be_visible()
    page.unroute("**/console/session")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    fresh_site.keep(page.context)
    page.context.close()


def logged_in(site: Site, path: str) -> Page:
    """Return a page of a user who has a session of their own."""
    page = context(site.browser).new_page()
    page.goto(URL + path)
    log_in(page)
    return page


def log_in(page: Page) -> None:
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()


def test_measured_delays_are_gone_after_logout(fresh_site: Site) -> None:
    row = "203.0.113.1,1080,u,secret,seen"
    fresh_site.lab.api.post("/nodes/import", {"type": "socks5", "text": row})
    page = logged_in(fresh_site, "#/nodes")
    badge = page.get_by_role("button", name="Measure the delay of seen")
    page.route("**/nodes/delay?*", lambda route: route.fulfill(json={"delay": 42}))
    badge.click()
    expect(badge).to_contain_text("42 ms")
    page.get_by_role("button", name="Log out").click()
    log_in(page)
    expect(badge).to_contain_text("test")
    page.context.close()


def test_a_list_requested_before_login_shows_no_error(fresh_site: Site) -> None:
    page = context(fresh_site.browser).new_page()
    page.goto(URL + "#/rules")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    page.route("**/ops/rules?since=0", hold)
    with page.expect_request("**/ops/rules?since=0"):
        log_in(page)
    expect(page.get_by_text("Loading…")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)
    held[0].continue_()
    expect(page.get_by_text("There is no rule yet.")).to_be_visible()
    expect(page.get_by_role("button", name="Import a list")).to_be_visible()
    page.get_by_role("button", name="Add the first one").click()
    expect(page.get_by_role("form", name="Add a rule")).to_be_visible()
    page.context.close()


def test_typed_text_survives_the_end_of_the_session(fresh_site: Site) -> None:
    other = logged_in(fresh_site, "#/whitelist")
    domains = other.get_by_label("Domains")
    domains.fill("typed.test")
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    other.once("dialog", stay)
    with other.expect_event("dialog"):
        other.evaluate("setTimeout(() => location.reload())")
    assert asked == ["beforeunload"]

    with fresh_site.visit("#/settings") as page:
        page.get_by_role("button", name="Revoke all others").click()
        expect(other.get_by_role("heading", name="Log in")).to_be_visible(timeout=15_000)
    expect(other.get_by_label("Password", exact=True)).to_be_focused()
    screenshot(other, "login-again")
    # Nothing but the login can be reached, and it does not go away.
    for _ in range(2):
        other.keyboard.press("Escape")
    assert other.evaluate("document.querySelector('dialog').matches(':modal')")
    log_in(other)
    expect(domains).to_have_value("typed.test")
    expect(other).to_have_title("Whitelist · egressd")
    other.get_by_role("button", name="Save").click()
    expect(other.get_by_role("status").filter(has_text="whitelist")).to_be_visible()
    assert fresh_site.lab.api.get("/whitelist")["domains"] == "typed.test"

    # A logout on purpose leaves nothing behind, also if the session had ended.
    domains.fill("left.test")
    other.context.clear_cookies()
    other.get_by_role("button", name="Log out").click()
    leaving = other.get_by_role("dialog", name="Discard your changes?")
    leaving.get_by_role("button", name="Discard").click()
    expect(other.get_by_role("heading", name="Log in")).to_be_visible()
    expect(domains).to_have_count(0)
    other.context.close()


def test_an_import_is_checked_again_after_login(fresh_site: Site) -> None:
    page = logged_in(fresh_site, "#/rules")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Import").click()
    dialog = page.get_by_role("dialog", name="Import rules")
    page.context.clear_cookies()
    dialog.get_by_label("Rows to import").fill("10.77.1.202,DIRECT,late")
    expect(page.get_by_role("heading", name="Log in")).to_be_visible()
    log_in(page)
    expect(dialog.get_by_role("button", name="Import 1 row")).to_be_enabled()
    expect(dialog.get_by_role("alert")).to_have_count(0)
    page.context.close()


def test_a_login_appears_at_once_in_other_sessions(fresh_site: Site) -> None:
    with fresh_site.visit("#/overview") as page, fresh_site.visit("#/settings") as settings:
        changes = page.get_by_role("region", name="Recent changes").get_by_role("listitem")
        sessions = settings.get_by_role("region", name="Sessions").get_by_role("listitem")
        for one in (page, settings):
            expect(one.get_by_text("Running", exact=True).locator("visible=true")).to_be_visible()
        expect(sessions.filter(has_text="this one")).to_be_visible()
        before = sessions.count()
        other = logged_in(fresh_site, "#/settings")
        expect(sessions).to_have_count(before + 1)
        expect(changes.first).to_contain_text("logged in")
        mine = other.get_by_role("listitem").filter(has_text="this one").inner_text()
        (who,) = re.findall("session [0-9a-f]{8}", mine)
        expect(changes.first).to_contain_text(who)
        other.context.close()


def test_a_new_password_must_be_typed_twice(fresh_site: Site) -> None:
    with fresh_site.visit("#/settings") as page:
        form = page.get_by_role("region", name="Password")
        form.get_by_label("Current password").fill(PASSWORD)
        form.get_by_label("New password").fill(PASSWORD)
        form.get_by_label("Password again").fill("something else")
        page.get_by_role("link", name="Rules").click()
        leaving = page.get_by_role("dialog", name="Discard your changes?")
        leaving.get_by_role("button", name="Cancel").click()
        form.get_by_role("button", name="Change the password").click()
        expect(form.get_by_text("The two passwords differ.")).to_be_visible()
        form.get_by_label("Password again").fill(PASSWORD)
        form.get_by_role("button", name="Change the password").click()
        expect(page.get_by_role("status").filter(has_text="password changed")).to_be_visible()
        expect(form.get_by_label("Password again")).to_have_value("")
        fresh_site.keep(page.context)


def test_a_revoked_session_shows_the_login(fresh_site: Site) -> None:
    other = logged_in(fresh_site, "#/rules")
    expect(other.get_by_role("heading", name="Rules")).to_be_visible()

    with fresh_site.visit("#/settings") as page:
        sessions = page.get_by_role("region", name="Sessions")
        sessions.get_by_role("button", name="Revoke all others").click()
        expect(sessions.get_by_role("button", name="Revoke")).to_have_count(0)
    # The stream ends with the session, without a click.
    expect(other.get_by_role("heading", name="Log in")).to_be_visible(timeout=15_000)
    other.context.close()


def test_the_password_still_works_while_a_setup_code_is_pending(fresh_site: Site) -> None:
    fresh_site.lab.device.run("console", "code")
    page = context(fresh_site.browser).new_page()
    page.goto(URL)
    expect(page.get_by_role("heading", name="Welcome")).to_be_visible()
    page.get_by_role("button", name="Log in with the password").click()
    expect(page.get_by_label("Password", exact=True)).to_be_focused()
    page.get_by_role("button", name="Use the setup code").click()
    expect(page.get_by_label("Setup code")).to_be_focused()
    page.get_by_role("button", name="Log in with the password").click()
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_role("button", name="Log in", exact=True).click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    page.context.close()

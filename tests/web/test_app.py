"""The page as an app: it can be installed, and is back at once after sleep."""

from __future__ import annotations

import struct

import pytest
from playwright.sync_api import expect

from tests.web.chromium import context
from tests.web.icons import PUBLIC
from tests.web.site import URL, Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]


def test_the_page_can_be_installed_as_an_app(site: Site) -> None:
    with site.visit() as page:
        session = page.context.new_cdp_session(page)
        found = session.send("Page.getAppManifest")
        assert found["errors"] == []
        assert found["url"].endswith("/manifest.webmanifest")
        errors = session.send("Page.getInstallabilityErrors")["installabilityErrors"]
        # The tests' profile keeps nothing, and does not trust the device's own certificate.
        assert {each["errorId"] for each in errors} <= {"in-incognito", "not-from-secure-origin"}
        icons = page.evaluate(
            "fetch('./manifest.webmanifest').then((it) => it.json()).then((it) => it.icons)"
        )
    assert {each.get("purpose", "any") for each in icons} == {"any", "maskable"}
    for icon in icons:
        if icon["type"] == "image/png":
            content = (PUBLIC / icon["src"]).read_bytes()
            width, height = struct.unpack(">II", content[16:24])  # of the chunk IHDR
            assert icon["sizes"] == f"{width}x{height}"


def test_the_page_is_back_at_once_when_the_network_is(site: Site) -> None:
    """Its timers stand still here, as they do while a phone sleeps."""
    made = context(site.browser, state=site.state)
    try:
        page = made.new_page()
        page.goto(URL)
        condition = page.get_by_role("status").first
        expect(condition).to_have_text("Running")
        page.clock.install()
        page.clock.pause_at(page.evaluate("Date.now() + 60_000"))
        made.set_offline(True)
        page.evaluate("dispatchEvent(new Event('pageshow'))")
        expect(condition).to_have_text("No connection")
        made.set_offline(False)
        expect(condition).to_have_text("Running")
    finally:
        made.close()

"""The card of what the machine lacks: at the first start and in the settings."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest
from playwright.sync_api import Page, Route, expect

from egressd.api.wire.answers import reply
from egressd.api.wire.check import CheckFinding, CheckFindings
from egressd.model.findings import MachineFinding
from tests.support.findings import NO_DHCP, NO_LAN, NO_PPTP
from tests.web.axe import serious
from tests.web.chromium import screenshot
from tests.web.site import Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]

CHECK = "**/ops/check"
PLACES = ("overview", "settings")


def lacks(page: Page, *findings: MachineFinding) -> None:
    """Let the device of this page lack these."""
    body = reply(CheckFindings(data=[CheckFinding.of(each) for each in findings])).body
    page.unroute_all()
    page.route(
        CHECK, lambda route: route.fulfill(body=bytes(body), content_type="application/json")
    )


def shown(page: Page, place: str, *findings: MachineFinding) -> None:
    lacks(page, *findings)
    page.evaluate(f"location.hash = '#/{place}'")
    page.reload()


def test_the_first_use_and_the_settings_show_what_the_device_finds(site: Site) -> None:
    told: Sequence[dict[str, str]] = site.lab.api.ask("GET", "/ops/check").body["data"]
    assert told, "no DHCP server runs in a lab"
    for place in PLACES:
        with site.visit(f"#/{place}") as page:
            card = page.get_by_role("region", name="Readiness")
            items = card.get_by_role("listitem")
            expect(items).to_have_count(len(told))
            for item, found in zip(items.all(), told, strict=True):
                for field in ("text", "cost", "cure"):
                    expect(item).to_contain_text(found[field])


def test_a_device_with_a_rule_has_the_card_in_the_settings_alone(site: Site) -> None:
    with site.kept():
        site.lab.api.post("/rules", {"ip": "10.77.6.9", "target_node": "DIRECT"})
        with site.visit("#/overview") as page:
            expect(page.get_by_role("region", name="Problems")).to_be_visible()
            expect(page.get_by_role("region", name="Readiness")).to_have_count(0)


def test_a_first_start_without_findings_shows_one_quiet_line(site: Site) -> None:
    with site.visit("#/whitelist") as page:
        shown(page, "overview")
        fine = "This machine lacks nothing that egressd needs."
        expect(page.get_by_role("status").filter(has_text=fine)).to_be_visible()
        expect(page.get_by_role("region", name="Readiness")).to_have_count(0)
        shown(page, "settings")
        card = page.get_by_role("region", name="Readiness")
        expect(card.get_by_role("status")).to_have_text(fine)
        expect(card.get_by_role("listitem")).to_have_count(0)


@pytest.mark.parametrize("place", PLACES)
def test_check_again_keeps_the_focus_and_reports_the_outcome(site: Site, place: str) -> None:
    with site.visit("#/whitelist") as page:
        shown(page, place, NO_LAN, NO_DHCP)
        card = page.get_by_role("region", name="Readiness")
        status = card.get_by_role("status")
        expect(status).to_have_text("2 findings about this machine")
        held: list[Route] = []

        def hold(route: Route) -> None:
            held.append(route)

        page.unroute_all()
        page.route(CHECK, hold)
        again = card.get_by_role("button", name="Check again")
        again.focus()
        with page.expect_request(CHECK):
            page.keyboard.press("Enter")
        expect(status).to_have_text("Checking…")
        expect(again).to_have_attribute("aria-disabled", "true")
        page.keyboard.press("Enter")  # no second check while one runs
        expect(card.get_by_role("listitem")).to_have_count(2)
        (only,) = held
        only.fulfill(body='{"data": []}', content_type="application/json")
        expect(card.get_by_role("listitem")).to_have_count(0)
        expect(status).to_have_text("This machine lacks nothing that egressd needs.")
        expect(again).to_be_focused()


@pytest.mark.parametrize("place", PLACES)
def test_a_check_that_fails_can_be_repeated(site: Site, place: str) -> None:
    with site.visit("#/whitelist") as page:
        page.route(CHECK, lambda route: route.fulfill(status=500, json={"error": "the disk hangs"}))
        page.evaluate(f"location.hash = '#/{place}'")
        page.reload()
        card = page.get_by_role("region", name="Readiness")
        expect(card.get_by_role("alert")).to_contain_text("the disk hangs")
        lacks(page, NO_PPTP)
        card.get_by_role("button", name="Check again").click()
        expect(card.get_by_role("listitem")).to_have_count(1)
        expect(card.get_by_role("alert")).to_have_count(0)


def test_findings_are_shown_in_chinese(site: Site) -> None:
    with site.visit("#/whitelist", language="zh-CN") as page:
        shown(page, "settings", NO_LAN, NO_PPTP, NO_DHCP)
        card = page.get_by_role("region", name="就绪检查")
        lan, pptp, dhcp = (card.get_by_role("listitem").nth(n) for n in range(3))
        for item, level in ((lan, "阻断"), (pptp, "受限"), (dhcp, "提示")):
            expect(item.get_by_text(level, exact=True)).to_be_visible()
        expect(pptp).to_contain_text("内核缺少 ppp_mppe, ppp_generic")
        expect(pptp).to_contain_text("没有加密的 PPTP 线路")
        for item, found in ((lan, NO_LAN), (pptp, NO_PPTP), (dhcp, NO_DHCP)):
            for text in (found.text, found.cost, found.cure):
                expect(item).not_to_contain_text(text)


@pytest.mark.parametrize(
    ("width", "theme", "language"),
    list(product((1280, 390), ("light", "dark"), ("en", "zh-CN"))),
)
def test_the_card_is_accessible_in_each_language_theme_and_width(
    site: Site, width: int, theme: str, language: str
) -> None:
    bad = []
    with site.visit("#/whitelist", width=width, theme=theme, language=language) as page:
        for place in PLACES:
            shown(page, place, NO_LAN, NO_PPTP, NO_DHCP)
            expect(page.locator("section[aria-labelledby=readiness] li")).to_have_count(3)
            screenshot(page, f"readiness-{place}-{width}-{theme}-{language}")
            bad += [f"{place}: {each}" for each in serious(page)]
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            bad += [f"{place}: {wide} px wider than the window"] if wide > 0 else []
    assert not bad, "\n".join(bad)

"""Every page in both languages and themes, on a desktop and on a phone: screenshots,
and axe-core.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from typing import Final, Literal

import pytest
from playwright.sync_api import expect

from egressd.console.page import FOLDER
from egressd_lab.spec import WEB_SERVERS
from tests.support.device import SERVER
from tests.web.axe import serious
from tests.web.chromium import screenshot
from tests.web.site import Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]

PAGES = (
    "overview",
    "rules",
    "devices",
    "nodes",
    "subscriptions",
    "groups",
    "lines",
    "whitelist",
    "proxies",
    "history",
    "why",
    "settings",
    "api",
)
HEADINGS = {
    "en": "Overview Rules Devices Nodes Subscriptions Groups VPN_lines Whitelist Proxy_services"
    " History Why? Settings API_settings",
    "zh-CN": "概览 规则 终端 节点 订阅 节点组 VPN_线路 白名单 代理服务 历史 为什么？ 设置 API_设置",  # noqa: RUF001
}
HOSTILE = "<img src=x onerror=alert(1)>'\"&amp;{{7*7}}"
PAGE_MAX = 150 * 1024
"""Bytes of the page in English, with gzip."""
CHINESE_MAX = 28 * 1024
"""Bytes of the script that only Chinese pages load, with gzip."""
LATER_MAX = 36 * 1024
"""Bytes of the script with nine of the pages, which is loaded when one of them is first shown, with
gzip.
"""
ICONS_MAX = 40 * 1024
"""Bytes of all icons of the installed page."""


@pytest.fixture(scope="module")
def furnished(site: Site) -> Iterator[Site]:
    """Yield a site with content on each page."""
    lab = site.lab
    for kind in ("socks5", "http", "ss"):
        lab.api.post("/nodes", lab.nodes[kind].draft("pool"))
    lab.api.post("/nodes", lab.nodes["http"].draft() | {"name": HOSTILE, "group": HOSTILE})
    targets = ("Group_pool", "ss", "DIRECT", "Interface:wan2", "Interface:wan9", "REJECT", HOSTILE)
    for n in range(1, 41):
        lab.api.post(
            "/rules",
            {
                "ip": f"10.77.0.{10 + n}",
                "target_node": targets[n % len(targets)],
                "comment": HOSTILE if n == 3 else f"seat {n}",
                "download_limit_kbps": 20_000 if n % 5 == 0 else 0,
                "is_enabled": n % 9 != 0,
            },
        )
    lab.api.post(
        "/vpn-lines",
        {
            "type": "l2tp",
            "name": "l2tp_a",
            "server": "192.0.2.99",
            "username": "u",
            "password": "p",
        },
    )
    lab.api.post("/proxy-services", {"name": HOSTILE, "outbound_interface": "wan2", "port": 18080})
    listed = {"name": HOSTILE, "url": f"http://{SERVER}/list", "is_enabled": False}
    lab.api.ask("POST", "/ops/subscriptions", listed)
    lab.api.put("/whitelist", {"domains": "example.com", "ips": "", "node": "DIRECT"})
    download = lab.client(1).download(f"http://{WEB_SERVERS[0]}/drip/600", timeout=60)
    yield site
    download.stop()


LOOKS: Final[tuple[tuple[int, Literal["light", "dark"], str], ...]] = (
    (1280, "light", "en"),
    (1280, "dark", "zh-CN"),
    (390, "light", "zh-CN"),
    (390, "dark", "en"),
)
"""Each width in each language, and the theme of the screenshots. Only colours depend on the theme:
they are judged in the other one, too."""
OTHER: Final[dict[str, Literal["light", "dark"]]] = {"light": "dark", "dark": "light"}


@pytest.mark.parametrize(("width", "theme", "language"), LOOKS)
def test_every_page_is_accessible_in_each_language_theme_and_width(
    furnished: Site, width: int, theme: Literal["light", "dark"], language: str
) -> None:
    findings = []
    with furnished.visit("#/overview", width=width, theme=theme, language=language) as page:
        for name, heading in zip(PAGES, HEADINGS[language].split(), strict=True):
            page.evaluate(f"location.hash = '#/{name}'")
            expect(page.get_by_role("heading", level=1)).to_have_text(heading.replace("_", " "))
            page.wait_for_timeout(2500 if name == "overview" else 400)
            screenshot(page, f"{name}-{width}-{theme}-{language}")
            findings += [f"{name}: {finding}" for finding in serious(page)]
            page.emulate_media(color_scheme=OTHER[theme], reduced_motion="reduce")
            colours = serious(page, "color-contrast")
            findings += [f"{name}, {OTHER[theme]}: {finding}" for finding in colours]
            page.emulate_media(color_scheme=theme)
            wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            if wide > 0:
                findings.append(f"{name}: {wide} px wider than the window")
        if width < 500:
            page.evaluate("location.hash = '#/rules'")
            menu = {"en": "Menu", "zh-CN": "菜单"}[language]
            page.get_by_role("button", name=menu).click()
            screenshot(page, f"menu-{width}-{theme}-{language}")
            findings += [f"menu: {finding}" for finding in serious(page)]
    assert not findings, "\n".join(findings)


@pytest.mark.parametrize("width", [1280, 390])
def test_forms_and_dialogs_are_accessible(furnished: Site, width: int) -> None:
    findings = []
    with furnished.visit("#/rules", width=width) as page:
        page.get_by_role("button", name="Add a rule").click()
        page.get_by_label("Exit").click()
        screenshot(page, f"rule-form-{width}")
        findings += serious(page)
        page.keyboard.press("Escape")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="More").click()
        findings += serious(page)
        page.get_by_role("menuitem", name="Import").click()
        page.get_by_label("Rows to import").fill("10.77.5.1,DIRECT,x\nbad,DIRECT,y")
        expect(page.get_by_text("1 bad", exact=True)).to_be_visible()
        screenshot(page, f"import-{width}")
        findings += serious(page)
    assert findings == []


def test_names_are_shown_as_text_everywhere(furnished: Site) -> None:
    # `visit` fails on a dialog and on any violation of the content policy.
    with furnished.visit("#/rules") as page:
        expect(page.get_by_role("row").filter(has_text=HOSTILE).first).to_be_visible()
        page.get_by_role("button", name="Add a rule").click()
        page.get_by_label("Exit").fill("<img")
        expect(page.get_by_role("option", name=HOSTILE).first).to_be_visible()
        for name in ("nodes", "proxies", "overview"):
            page.evaluate(f"location.hash = '#/{name}'")
            expect(page.get_by_text("<img src=x").first).to_be_visible()
        assert page.locator("img").count() == 0


def test_the_page_loads_no_other_host_and_no_inline_script_or_style(furnished: Site) -> None:
    asked: list[str] = []
    with furnished.visit("#/overview") as page:
        page.on("request", lambda request: asked.append(request.url))
        response = page.reload()
        assert response is not None
        policy = response.header_value("content-security-policy") or ""
        page.wait_for_timeout(1000)
    assert "unsafe-inline" not in policy
    assert "unsafe-eval" not in policy
    assert "default-src 'none'" in policy or "default-src 'self'" in policy
    html = (FOLDER / "index.html").read_text()
    assert "<style" not in html
    assert not re.search(r"<script(?![^>]*\ssrc=)", html)
    assert " style=" not in html
    assert {url.split("/")[2] for url in asked} == {"10.77.0.1:8788"}


def test_the_built_page_is_within_its_size_limit() -> None:
    files = [file for file in FOLDER.rglob("*") if file.is_file()]
    sizes = {file.name: len(gzip.compress(file.read_bytes())) for file in files}
    (chinese,) = [name for name in sizes if name.startswith("chinese-")]
    assert 0 < sizes[chinese] < CHINESE_MAX
    # What the document names is loaded at once.
    html = (FOLDER / "index.html").read_text()
    is_script = re.compile(r"\.js$").search
    later = {name for name in sizes if is_script(name) and name not in html and name != chinese}
    assert later, "the page of the API's settings is loaded later"
    assert all(sizes[name] < LATER_MAX for name in later), json.dumps(sizes)
    # Pictures of the installed page: a browser loads one when it is installed.
    icons = {name for name in sizes if name.endswith(".png")}
    assert sum(sizes[name] for name in icons) < ICONS_MAX, json.dumps(sizes)
    first = sum(size for name, size in sizes.items() if name not in {chinese, *later, *icons})
    assert 0 < first < PAGE_MAX, json.dumps(sizes)

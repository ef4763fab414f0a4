"""The device's console as a user at one of its clients sees it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, Page, expect

from egressd_lab import netns
from egressd_lab.device import TLS_PORT
from egressd_lab.lab import Lab
from egressd_lab.spec import LAN_ADDRESS, LabSpec
from tests.web.chromium import chromium, context

PASSWORD: Final = "correct horse battery"
URL: Final = f"https://{LAN_ADDRESS}:{TLS_PORT}/"
_LISTS: Final[dict[str, tuple[str, Callable[[list[dict[str, Any]]], object]]]] = {
    "rules": ("/rules/batch", lambda rows: {"ips": [row["ip"] for row in rows]}),
    "nodes": ("/nodes/batch", lambda rows: {"ids": [row["id"] for row in rows]}),
    "vpn-lines": (
        "/vpn-lines",
        lambda rows: {"items": [{key: row[key] for key in ("type", "name")} for row in rows]},
    ),
}
"""The way to delete rows of each list: the path, and the body of the request."""
_CODE: Final = re.compile(r'"setup_code": "([0-9A-Z-]{14})"')


@contextmanager
def first_start(spec: LabSpec | None = None) -> Iterator[Site]:
    """Yield a device at its first start, in a lab of its own: no password has been chosen."""
    with Lab(spec) as lab:
        lab.start_egressd()
        with chromium(netns.namespace(lab.name, "client3")) as browser:
            yield Site(lab, browser)


@dataclass
class Site:
    """The device, and the browser that looks at it."""

    lab: Lab
    browser: Browser
    state: Any = field(default=None)
    """The cookies of the user who is logged in."""

    def setup_code(self) -> str:
        """Return the setup code that the service logged at its start."""
        found = _CODE.findall(self.lab.device.program.log.read_text())
        assert found
        return str(found[-1])

    @contextmanager
    def visit(self, path: str = "#/overview", **tastes: Any) -> Iterator[Page]:
        """Open a page of the console. Any complaint of the browser fails the test."""
        made = context(self.browser, **tastes, state=self.state)
        page = made.new_page()
        complaints = watched(page)
        page.goto(URL + path)
        try:
            yield page
        finally:
            made.close()
        assert complaints == []

    def log_in(self) -> None:
        """Choose the password, and stay logged in."""
        made = context(self.browser)
        page = made.new_page()
        page.goto(URL)
        page.get_by_label("Setup code").fill(self.setup_code())
        page.get_by_label("Password", exact=True).fill(PASSWORD)
        page.get_by_label("Password again").fill(PASSWORD)
        page.get_by_role("button", name="Begin").click()
        page.get_by_role("heading", name="Overview").wait_for()
        self.keep(made)
        made.close()

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Remove the rows that the block adds, and restore settings and whitelist, also if it
        fails.
        """
        api = self.lab.api
        settings = api.ask("GET", "/ops/settings").body
        whitelist = api.get("/whitelist")
        before = {name: {row["id"] for row in api.get(f"/{name}")["data"]} for name in _LISTS}
        try:
            yield
        finally:
            api.ask("PUT", "/ops/settings", settings)
            api.put("/whitelist", {key: whitelist[key] for key in ("domains", "ips", "node")})
            for name, (path, body) in _LISTS.items():
                rows = api.get(f"/{name}")["data"]
                made = [row for row in rows if row["id"] not in before[name]]
                if made:
                    api.delete(path, body(made))

    def rename_line(self, old: str, new: str) -> None:
        """Rename a line as another operator would."""
        (line,) = [one for one in self.lab.api.get("/vpn-lines")["data"] if one["name"] == old]
        body = {field: line[field] for field in line.keys() - {"id", "is_online"}}
        self.lab.api.put(f"/vpn-lines/{line['type']}/{old}", body | {"name": new})

    def keep(self, made: BrowserContext) -> None:
        """Use this visitor's session from now on."""
        self.state = made.storage_state()


@contextmanager
def hidden(page: Page) -> Iterator[None]:
    """Hide the page as in an inactive tab, where it receives no events."""
    shown = page.get_by_text("Running", exact=True).locator("visible=true")
    expect(shown).to_be_visible()
    page.evaluate(
        "Object.defineProperty(document, 'hidden',"
        " {configurable: true, get: () => globalThis.isHidden}),"
        "globalThis.isHidden = true, document.dispatchEvent(new Event('visibilitychange'))"
    )
    expect(page.get_by_text("No connection").locator("visible=true")).to_be_visible()
    yield
    page.evaluate(
        "globalThis.isHidden = false, document.dispatchEvent(new Event('visibilitychange'))"
    )
    expect(shown).to_be_visible()


def watched(page: Page) -> list[str]:
    """Return a list that collects the browser's complaints: script errors, policy violations,
    dialogs.
    """
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    # A refused request is reported too: tests provoke those.
    page.on(
        "console",
        lambda message: (
            complaints.append(message.text)
            if message.type in ("error", "warning") and "Failed to load" not in message.text
            else None
        ),
    )
    return complaints

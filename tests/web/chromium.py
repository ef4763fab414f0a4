"""Debian's Chromium inside a lab's namespace, driven by Playwright."""

from __future__ import annotations

import os
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from egressd_lab import netns

CHROMIUM: Final = "/usr/bin/chromium-headless-shell"
"""Chromium without its windows: to open a page takes a third of the CPU time (0.45 s, not 1.45)."""
SCREENSHOTS: Final = Path(__file__).resolve().parents[2] / "build" / "screenshots"
"""Screenshots, kept after the tests for review. Git ignores ``build``."""

ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium(namespace: str) -> Iterator[Browser]:
    """Run a headless Chromium whose network is the namespace's, with a profile of its own."""
    with tempfile.TemporaryDirectory(prefix="chromium-") as folder:
        # Playwright starts one program and communicates with it over inherited pipes.
        start = Path(folder) / "chromium"
        command = shlex.join(netns.exec_argv(namespace, [CHROMIUM]))
        start.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        start.chmod(0o755)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=start, args=list(ARGUMENTS), env={**os.environ, "HOME": folder}
            )
            try:
                yield browser
            finally:
                browser.close()


def context(
    browser: Browser,
    *,
    width: int = 1280,
    height: int | None = None,
    scale: int = 1,
    theme: str = "light",
    language: str = "en",
    state: Any = None,
) -> BrowserContext:
    """Return a new visitor's context, with window and preferences; `state` holds initial cookies.

    `width` and `height` are in CSS pixels, `scale` is the screen's pixels in each of them. By
    default a window has the usual height of a phone or a desktop. The device's certificate is
    self-made, so no authority vouches for it.
    """
    made = browser.new_context(
        viewport={"width": width, "height": height or (844 if width < 500 else 800)},
        device_scale_factor=scale,
        locale=language,
        color_scheme="dark" if theme == "dark" else "light",
        has_touch=width < 500,
        ignore_https_errors=True,
        storage_state=state,
    )
    made.set_default_timeout(10_000)
    return made


def screenshot(page: Page, name: str) -> None:
    """Save a screenshot of the page."""
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")

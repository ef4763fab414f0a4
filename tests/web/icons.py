"""The icons of the installed page, as pictures of ``web/public/icon.svg``.

``.venv/bin/python -m tests.web.icons`` draws them again; `tests/web/test_app.py` compares their
sizes with those in the manifest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from playwright.sync_api import sync_playwright

from tests.web.chromium import ARGUMENTS, CHROMIUM

PUBLIC: Final = Path(__file__).resolve().parents[2] / "web" / "public"
_PLAIN: Final = "<style>body {{ margin: 0 }} svg {{ display: block; width: {size}px }}</style>{svg}"
_MASKABLE: Final = (
    "<style>body {{ margin: 0; background: #0c6b5c }}"
    " svg {{ display: block; width: 60%; padding: 20% }}</style>{svg}"
)
"""An icon of which a launcher may cut off all but the middle 80 % (W3C, Web App Manifest,
"maskable")."""
_ICONS: Final = {
    "icon-192.png": (192, _PLAIN),
    "icon-512.png": (512, _PLAIN),
    "icon-maskable.png": (512, _MASKABLE),
}


def draw() -> None:
    """Write all icons."""
    svg = (PUBLIC / "icon.svg").read_text()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        for name, (size, form) in _ICONS.items():
            page = browser.new_page(viewport={"width": size, "height": size})
            page.set_content(form.format(size=size, svg=svg))
            page.screenshot(path=PUBLIC / name, omit_background=True)
        browser.close()


if __name__ == "__main__":
    draw()

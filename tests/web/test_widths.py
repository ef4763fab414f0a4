"""Lists at all widths of a window: no row is wider than its table."""

from __future__ import annotations

from typing import Any

import pytest

from tests.web.site import Site

pytestmark = [pytest.mark.lab, pytest.mark.browser]

LINE = {
    "type": "pptp",
    "name": "pptp_a",
    "server": "192.0.2.9",
    "username": "office",
    "password": "p",
}
SERVICE = {"name": "s", "outbound_interface": "wan2", "port": 18_081}
ROWS: dict[str, tuple[str, dict[str, Any]] | None] = {
    "rules": None,
    "nodes": None,
    "lines": ("/vpn-lines", LINE),
    "proxies": ("/proxy-services", SERVICE),
}
"""Pages with a list -> the path and the body of a row, if the site has none."""
IS_WHOLE = """() => {
  const rows = [...document.querySelectorAll("main [role=row]")].filter((row) => !row.hidden);
  return rows.length > 0 && rows.every((row) => row.scrollWidth <= row.clientWidth);
}"""


@pytest.mark.parametrize("name", ROWS)
def test_no_button_of_a_row_is_cut_off_at_any_width(tidy: Site, name: str) -> None:
    if made := ROWS[name]:
        tidy.lab.api.post(*made)
    with tidy.visit(f"#/{name}") as page:
        for width in range(360, 1700, 20):
            page.set_viewport_size({"width": width, "height": 700})
            page.wait_for_function(IS_WHOLE, timeout=5000)

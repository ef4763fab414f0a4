"""A lab with egressd in it, and Chromium at one of its clients, logged in to the console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import expect

from egressd_lab.spec import WEB_SERVERS
from tests.web.site import Site, first_start

DELAY_URL: Final = f"http://{WEB_SERVERS[2]}/generate_204"


@pytest.fixture(scope="module")
def fresh_site(namespaces: None) -> Iterator[Site]:
    """Yield a device at its first start: no password has been chosen."""
    with first_start() as site:
        yield site


@pytest.fixture(scope="module")
def site(fresh_site: Site) -> Site:
    """Return a device with an administrator, who is logged in."""
    fresh_site.log_in()
    return fresh_site


@pytest.fixture(scope="module")
def served(site: Site) -> Site:
    """Return a site with nodes, and a client that uses one of them."""
    lab = site.lab
    with site.visit("#/settings") as page:
        # The lab has no such host as the device's default.
        page.get_by_label("URL for delay tests").fill(DELAY_URL)
        page.get_by_role("region", name="Routing").get_by_role("button", name="Save").click()
        expect(page.get_by_role("status").filter(has_text="settings")).to_be_visible()
    for kind in ("socks5", "ss"):
        lab.api.post("/nodes", lab.nodes[kind].draft("pool"))
    lab.api.post("/rules", {"ip": lab.client(1).address, "target_node": "ss"})
    lab.api.post("/rules", {"ip": lab.client(2).address, "target_node": "Interface:wan9"})
    return site


@pytest.fixture
def tidy(served: Site) -> Iterator[Site]:
    """Yield the same site, for a test that leaves nothing behind."""
    with served.kept():
        yield served

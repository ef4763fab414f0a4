"""A lab with egressd in it, and Chromium at one of its clients, logged in to the console."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.web.site import Site, first_start


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

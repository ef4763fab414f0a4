"""Undoing the changes of a site, whose log is in PostgreSQL."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from tests.store.rig import Site
from tests.support.netd_double import NetdDouble
from tests.support.random_operator import check_undoing
from tests.support.use_cases import Bench

pytestmark = pytest.mark.slow

CHANGES: Final = 1000
SEED: Final = 2828


@pytest.mark.timeout(900)
async def test_undone_changes_of_a_site_give_the_first_state(site: Site, tmp_path: Path) -> None:
    """In the site's database, as another member reads it, and in the member's own copy."""
    store = site.store(tmp_path)
    await store.open()
    bench = Bench(store, NetdDouble(), tmp_path)
    try:
        await bench.start()
        await check_undoing(bench, tmp_path, changes=CHANGES, seed=SEED)
        reader = site.database()
        await reader.open()
        assert await reader.load() == bench.state
        await reader.close()
    finally:
        await bench.ledger.close()
        await store.close()

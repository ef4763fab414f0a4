"""Large imports: one transaction, one change of the plan."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from egressd.model.plan import Change

if TYPE_CHECKING:
    from tests.support.use_cases import Bench


@pytest.mark.slow
async def test_ten_thousand_rules_are_imported_as_one_change(bench: Bench) -> None:
    for number in range(20):
        await bench.add_node(f"node {number}", server=f"198.51.100.{number}")
    text = "\n".join(f"10.{n >> 8}.{n & 255}.1,node {n % 20},room {n}" for n in range(10_000))
    asked, revision = len(bench.netd.asked), bench.ledger.revision
    outcome = await bench.rules.import_rows(text, replace=True)
    assert (outcome.imported, outcome.skipped) == (10_000, 0)
    assert bench.ledger.revision == revision + 1
    (change,) = bench.netd.asked[asked:]
    assert isinstance(change, Change)
    assert len(change.hosts.put) == 10_000
    await bench.agree()

    outcome = await bench.rules.import_rows(text, replace=True)
    assert outcome.imported == 10_000
    assert bench.ledger.revision == revision + 1

    for number in range(20):
        await bench.rules.set_enabled(number + 1, False)
    await bench.agree()


@pytest.mark.slow
async def test_two_thousand_nodes_are_imported_as_one_change(bench: Bench) -> None:
    text = "\n".join(f"198.51.{n >> 8}.{n & 255},1080,u,p,node {n}" for n in range(2000))
    outcome = await bench.nodes.import_rows(
        "socks5", text, replace=True, group="all", auto_name=False, start_index=1
    )
    assert outcome.imported == 2000
    assert bench.ledger.revision == 1
    await bench.agree()


@pytest.mark.slow
async def test_reads_are_served_during_a_large_import(bench: Bench) -> None:
    text = "\n".join(f"10.{n >> 8}.{n & 255}.1,DIRECT" for n in range(10_000))
    importing = asyncio.create_task(bench.rules.import_rows(text, replace=False))
    reads = 0
    while not importing.done():
        assert len(bench.rules.list()) in (0, 10_000)
        reads += 1
        await asyncio.sleep(0.001)
    assert (await importing).imported == 10_000
    assert reads > 10

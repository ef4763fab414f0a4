"""The epoch of the whitelist is a part of the state."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egressd.model.desired import WHITELIST, DesiredState, Edit
from egressd.model.errors import Failed
from egressd.planner.compile import whitelist
from egressd.planner.registry import MARK_EPOCHS, epoch_of
from egressd.service.whitelist_count import counted, counted_as
from tests.support.random_edits import Author, steps

if TYPE_CHECKING:
    from tests.support.use_cases import Bench, OpenBench

LISTED, OTHERS = ("", "192.0.2.1", "DIRECT"), ("", "192.0.2.2", "DIRECT")
"""Whitelists: domains, addresses, target."""


@settings(max_examples=200)
@given(st.lists(st.lists(steps, min_size=1, max_size=4), max_size=6))
def test_p1_listed_traffic_that_changes_has_another_epoch(changes: list[list[Any]]) -> None:
    state = DesiredState()
    for change in changes:
        author = Author(state)
        for verb, positional, keyword in change:
            getattr(author, verb)(*positional, **keyword)
        after = state.with_edits(author.edits, state.revision + 1)
        edits = counted(state, after, author.edits)
        after = after.with_edits(edits, after.revision)
        is_same = whitelist(state).same_entries(whitelist(after))
        assert is_same == (after.whitelist_count == state.whitelist_count)
        assert is_same == (whitelist(state).epoch == whitelist(after).epoch)
        state = after


@given(st.integers(0, 3 * MARK_EPOCHS), st.integers(1, MARK_EPOCHS - 1))
def test_the_count_rises_to_the_epoch_that_netd_gave(count: int, epoch: int) -> None:
    stored = [Edit("last_ids", WHITELIST, count)] if count else []
    state = DesiredState().with_edits(stored, 1)
    edits = counted_as(state, epoch)
    after = state.with_edits(edits, 2)
    assert epoch_of(max(after.whitelist_count, 1)) == epoch
    assert after.whitelist_count >= state.whitelist_count
    assert counted_as(after, epoch) == counted_as(after, 0) == []


async def test_a_saved_whitelist_has_its_epoch_in_the_plan_and_the_store(
    bench: Bench,
) -> None:
    await bench.whitelist.put(*LISTED)
    await bench.whitelist.put(*OTHERS)
    assert bench.netd.plan.whitelist.epoch == bench.state.whitelist_count == 3
    await bench.agree()
    await bench.whitelist.put(*OTHERS)
    assert bench.state.whitelist_count == 3
    await bench.whitelist.put("", "", "DIRECT")
    assert bench.netd.plan.whitelist.epoch == 4


async def test_another_netd_gives_the_epoch_of_the_store(
    tmp_path: Path, open_bench: OpenBench
) -> None:
    async with open_bench(tmp_path) as bench:
        await bench.start()
        await bench.whitelist.put(*LISTED)
    async with open_bench(tmp_path) as bench:
        await bench.start()
        assert bench.netd.plan.whitelist.epoch == 2
        assert bench.ledger.revision == 1


async def test_a_database_without_a_count_takes_over_that_of_netd(
    tmp_path: Path, open_bench: OpenBench
) -> None:
    """As after an upgrade: flows that the kernel routes are not cut."""
    async with open_bench(tmp_path) as bench:
        bench.netd.epoch = 7
        await bench.start()
        assert bench.state.whitelist_count == 7
        assert bench.netd.plan.whitelist.epoch == 7
        await bench.agree()
        bench.netd.epoch = 0
        await bench.whitelist.put(*LISTED)
        assert bench.netd.plan.whitelist.epoch == 8
    async with open_bench(tmp_path) as bench:
        await bench.start()
        assert bench.netd.plan.whitelist.epoch == 8


@pytest.mark.parametrize("failing", ["begin", "commit"])
async def test_a_failed_write_of_the_count_fails_no_start(
    tmp_path: Path, open_bench: OpenBench, failing: str
) -> None:
    async with open_bench(tmp_path) as bench:
        bench.netd.epoch = 7
        bench.store.failing = [failing]
        await bench.start()
        assert bench.ledger.phase == "running"
        assert bench.state.whitelist_count == 0
        await bench.agree()
        await bench.ledger.resync()
        assert bench.state.whitelist_count == 7


async def test_a_failed_change_returns_to_the_epoch_before(bench: Bench) -> None:
    await bench.whitelist.put(*LISTED)
    bench.store.failing = ["commit"]
    with pytest.raises(Failed):
        await bench.whitelist.put(*OTHERS)
    assert bench.netd.plan.whitelist.epoch == bench.state.whitelist_count == 2
    await bench.agree()

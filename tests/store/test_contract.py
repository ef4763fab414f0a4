"""The contract of a store: the same on SQLite, on PostgreSQL, and on PostgreSQL with a replica."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed, WriteConflict
from egressd.model.nouns import Rule, Settings
from egressd.store.database import Database
from egressd.store.postgres.database import SiteDatabase
from egressd.store.postgres.site_store import SiteStore
from tests.store.rig import EVERYTHING, Site, rules, write

pytestmark = pytest.mark.slow

Store = Database | SiteDatabase | SiteStore
Open = Callable[[], Awaitable[Store]]
"""Opens a store once more: each has the same content."""


@pytest.fixture(params=["sqlite", "postgresql", "site"])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Open]:
    kind: str = request.param
    site: Site | None = None if kind == "sqlite" else request.getfixturevalue("site")
    if kind == "postgresql":
        assert site is not None
        database = site.database()
        await database.open()
        await database.found(DesiredState(), "generation")
        await database.close()
    async with AsyncExitStack() as opened:

        async def open_one() -> Store:
            store: Store
            if site is None:
                store = Database(tmp_path)
            elif kind == "postgresql":
                store = site.database()
            else:
                store = site.store(tmp_path)
            await store.open()
            opened.push_async_callback(store.close)
            await store.load()
            return store

        yield open_one


async def test_every_kind_of_row_is_read_back_unchanged(open_store: Open) -> None:
    await write(await open_store(), EVERYTHING, 1)
    assert await (await open_store()).load() == DesiredState().with_edits(EVERYTHING, 1)


async def test_edits_replace_and_remove_rows(open_store: Open) -> None:
    disabled = Rule(id=1, ip="10.0.0.6/32", target_node="DIRECT", is_enabled=False)
    second = [
        Edit("rules", 1, disabled),
        Edit("nodes", 7, None),
        Edit("settings", 0, Settings(check_interval_s=5)),
    ]
    store = await open_store()
    await write(store, EVERYTHING, 1)
    await write(store, second, 2)
    expected = DesiredState().with_edits(EVERYTHING, 1).with_edits(second, 2)
    assert await store.load() == expected


async def test_unique_values_may_be_swapped_in_one_change(open_store: Open) -> None:
    first, second = rules(2)
    swapped = [
        Edit("rules", 1, Rule(id=1, ip=second.after.ip, target_node="x")),
        Edit("rules", 2, Rule(id=2, ip=first.after.ip, target_node="x")),
    ]
    store = await open_store()
    await write(store, [first, second], 1)
    await write(store, swapped, 2)
    by_ip = dict((await store.load()).rule_by_ip)
    assert by_ip == {first.after.ip: 2, second.after.ip: 1}


async def test_ids_are_never_reused(open_store: Open) -> None:
    store = await open_store()
    await write(store, EVERYTHING, 1)
    await write(store, [Edit("nodes", 7, None), Edit("rules", 1, None)], 2)
    state = await (await open_store()).load()
    assert state.next_id("nodes") == 8
    assert state.next_id("rules") == 2
    assert state.next_id("Group_") == 2
    assert state.next_id("Interface:") == 2


async def test_the_largest_id_is_stored(open_store: Open) -> None:
    largest = 2**53
    store = await open_store()
    await write(
        store, [Edit("rules", largest, Rule(id=largest, ip="10.0.0.1/32", target_node="x"))], 1
    )
    assert set((await store.load()).rules) == {largest}


async def test_a_rolled_back_write_leaves_no_trace(open_store: Open) -> None:
    store = await open_store()
    await write(store, rules(1), 1)
    before = await store.load()
    await store.begin(EVERYTHING, 2)
    await store.rollback()
    assert await store.load() == before
    await write(store, EVERYTHING[:3], 2)


async def test_an_open_transaction_is_rolled_back(open_store: Open) -> None:
    store = await open_store()
    await store.begin(rules(1), 1)
    await write(store, EVERYTHING, 1)
    assert await store.load() == DesiredState().with_edits(EVERYTHING, 1)


async def test_a_write_after_another_writers_is_a_conflict(open_store: Open) -> None:
    mine, other = await open_store(), await open_store()
    await write(other, rules(1), 1)
    with pytest.raises(WriteConflict, match="another program has written"):
        await mine.begin(rules(1), 1)
    assert set((await mine.load()).rules) == {1}
    await write(mine, rules(1, start=2), 2)
    assert set((await mine.load()).rules) == {1, 2}


async def test_a_commit_without_a_transaction_fails(open_store: Open) -> None:
    with pytest.raises(Failed, match="no transaction"):
        await (await open_store()).commit()

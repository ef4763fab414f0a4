"""The contract of a store: the same on SQLite, on PostgreSQL, and on PostgreSQL with a replica."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed, WriteConflict
from egressd.model.nouns import Rule, Settings
from egressd.model.trial import ChangeTrial
from egressd.model.undo import reversals
from egressd.store import undo_log
from egressd.store.database import Database
from egressd.store.postgres.database import SiteDatabase
from egressd.store.postgres.site_store import SiteStore
from tests.store.rig import EVERYTHING, Site, logged, rules, write

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


async def log_many(store: Store, first: int, number: int, undoes: int | None = None) -> None:
    for revision in range(first, first + number):
        edits = rules(1, start=revision)
        await store.begin(edits, revision, logged(edits, DesiredState(), undoes))
        await store.commit()


async def test_a_change_is_stored_with_its_inverse(open_store: Open) -> None:
    store = await open_store()
    first, second = DesiredState(), DesiredState().with_edits(EVERYTHING, 1)
    await store.begin(EVERYTHING, 1, logged(EVERYTHING, first))
    await store.commit()
    gone = [Edit(each.table, each.key, None) for each in EVERYTHING if each.table == "nodes"]
    await store.begin(gone, 2, logged(gone, second, undoes=1))
    assert [each.revision for each in await store.past_changes(9)] == [1]  # it is not committed
    await store.commit()
    other = await open_store()
    deleted, created = await other.past_changes(9)
    assert (deleted.revision, deleted.undoes, deleted.who) == (2, 1, "token")
    assert (created.revision, created.undoes, created.has_inverse) == (1, None, True)
    assert deleted.text == "node tokyo ☂ deleted"
    assert deleted.text.code == "deleted"
    assert await other.inverse(2) == reversals(second, gone)
    assert await other.inverse(1) == reversals(first, EVERYTHING)
    assert await other.inverse(3) is None
    assert [each.revision for each in await other.past_changes(1)] == [2]


async def test_a_change_is_found_with_all_that_undoes_it(open_store: Open) -> None:
    store = await open_store()
    for revision, undoes in ((1, None), (2, None), (3, 1), (4, 2), (5, 3), (6, 1)):
        await log_many(store, revision, 1, undoes=undoes)
    for revision, wanted in ((1, [1, 3, 6, 5]), (2, [2, 4]), (5, [5]), (7, [])):
        found = await store.changes_about(revision)
        assert [each.revision for each in found[:1]] == wanted[:1]
        assert sorted(each.revision for each in found) == sorted(wanted)


async def test_a_rolled_back_change_is_not_in_the_log(open_store: Open) -> None:
    store = await open_store()
    edits = rules(1)
    await store.begin(edits, 1, logged(edits, DesiredState()))
    await store.rollback()
    assert await store.past_changes(9) == []


async def test_the_oldest_changes_are_forgotten(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo_log, "CHANGES_KEPT", 20)
    store = await open_store()
    await log_many(store, 1, 64)
    await log_many(store, 65, 64, undoes=64)
    past = await store.past_changes(200)
    changes = [each.revision for each in past if each.undoes is None]
    assert changes == [*range(64, 64 - len(changes), -1)]
    assert 20 <= len(changes) < 52
    assert 20 <= len(past) - len(changes) < 52


async def test_the_oldest_inverses_make_room(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo_log, "_ROOM", 1000)
    store = await open_store()
    await log_many(store, 1, 32)
    past = await store.past_changes(100)
    assert len(past) == 32
    kept = [each.revision for each in past if each.has_inverse]
    assert kept == [*range(32, 32 - len(kept), -1)]
    assert 1 < len(kept) < 30
    assert await store.inverse(32)
    assert await store.inverse(1) is None


async def test_an_inverse_that_is_too_large_is_not_kept(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(undo_log, "_ROOM", 10)
    store = await open_store()
    await log_many(store, 1, 1)
    (change,) = await store.past_changes(9)
    assert not change.has_inverse


TRIAL = ChangeTrial(began_at=1_763_679_520, minutes=5, who="token", revision=1)


async def test_a_trial_is_stored_with_the_state_before_it(open_store: Open) -> None:
    store = await open_store()
    await write(store, EVERYTHING, 1)
    state = await store.load()
    assert await store.trial() is None
    assert await store.trial_state() is None
    assert await store.begin_trial(TRIAL, state)
    assert not await store.begin_trial(TRIAL, DesiredState())
    await write(store, rules(3, start=2), 2)
    other = await open_store()
    assert await other.trial() == TRIAL
    first = await other.trial_state()
    assert first is not None
    assert state.edits_to(first) == []
    assert await other.end_trial()
    assert not await store.end_trial()
    assert await store.trial() is None


async def test_a_trial_ends_with_the_change_that_takes_back(open_store: Open) -> None:
    store = await open_store()
    await write(store, EVERYTHING, 1)
    await store.begin_trial(TRIAL, await store.load())
    edits = rules(1)
    back = msgspec.structs.replace(logged(edits, DesiredState()), ends_trial=True)
    await store.begin(edits, 2, back)
    await store.rollback()
    assert await store.trial() == TRIAL
    await store.begin(edits, 2, back)
    await store.commit()
    assert await store.trial() is None
    with pytest.raises(Failed, match="they were confirmed, or taken back"):
        await store.begin(rules(1, start=2), 3, back)
    await write(store, rules(1, start=3), 3)


async def test_a_commit_without_a_transaction_fails(open_store: Open) -> None:
    with pytest.raises(Failed, match="no transaction"):
        await (await open_store()).commit()

"""The log of a site: what its members read of each other's changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed
from egressd.model.nouns import Settings
from egressd.store import edit_log
from egressd.store.postgres.database import SiteDatabase
from tests.store.rig import EVERYTHING, SECRETS, OpenDatabase, Site, rules, write

pytestmark = pytest.mark.slow

EMPTY = DesiredState()


async def founded(site: Site) -> SiteDatabase:
    database = site.database()
    await database.open()
    await database.found(EMPTY, "generation")
    return database


def followed(state: DesiredState, entries: object) -> DesiredState:
    assert isinstance(entries, list)
    for entry in entries:
        assert entry.revision == state.revision + 1
        state = state.with_edits(entry.edits, entry.revision)
    return state


def test_edits_are_read_back_from_their_bytes() -> None:
    edits = [
        *EVERYTHING,
        Edit("nodes", 7, None),
        Edit("last_ids", "whitelist", 3),
        Edit("settings", 0, Settings(unmanaged="REJECT")),
    ]
    assert edit_log.unpack(edit_log.pack(edits)) == edits
    with pytest.raises(ValueError, match="no such table"):
        edit_log.unpack(edit_log.pack([Edit("others", 1, None)]))


async def test_each_change_is_in_the_log(site: Site) -> None:
    database, other = await founded(site), site.second().database()
    await other.open()
    await write(database, EVERYTHING, 1)
    await write(other, rules(2, start=10), 2)
    await write(database, [Edit("nodes", 7, None)], 3)
    for reader in (database, other):
        state = await reader.load()
        assert followed(EMPTY, await reader.entries_after(0)) == state
        assert [entry.revision for entry in await reader.entries_after(1) or ()] == [2, 3]
        assert await reader.entries_after(3) == []
        await reader.close()


async def test_a_rolled_back_change_is_in_no_log(site: Site) -> None:
    database = await founded(site)
    await database.begin(rules(1), 1)
    await database.rollback()
    assert await database.entries_after(0) == []
    await database.close()


async def test_a_log_that_was_pruned_is_not_followed(site: Site) -> None:
    database, link = await founded(site), site.link()
    for revision in (1, 2, 3):
        await write(database, rules(1, start=revision), revision)
    await link.join(2, "")
    await link.prune()
    assert await database.entries_after(0) is None
    assert await database.entries_after(1) is None
    assert [entry.revision for entry in await database.entries_after(2) or ()] == [3]
    assert site.server.query("SELECT count(*) FROM edit_batch", site.role) == [["1"]]
    site.server.query("UPDATE change SET at = now() - interval '31 days'")
    await link.prune()
    assert await database.entries_after(2) is None
    await link.close()
    await database.close()


async def test_the_log_is_kept_for_a_member_that_is_away(site: Site) -> None:
    database, link = await founded(site), site.link()
    site.second()
    await write(database, rules(1), 1)
    await link.join(1, "")
    await link.prune()
    assert len(await database.entries_after(0) or ()) == 1
    await link.close()
    await database.close()


async def test_the_log_of_an_older_copy_is_not_followed(site: Site) -> None:
    database = await founded(site)
    await write(database, rules(1), 1)
    assert await database.entries_after(2) is None
    await database.close()


async def test_the_log_has_no_secret_in_clear(site: Site) -> None:
    database = await founded(site)
    await write(database, EVERYTHING, 1)
    for secret in SECRETS:
        found = f"SELECT 1 FROM edit_batch WHERE position('{secret}'::bytea IN edits) > 0"
        assert not site.server.query(found, site.role)
    await database.close()


async def test_an_entry_that_was_moved_or_is_newer_is_refused(site: Site) -> None:
    database = await founded(site)
    await write(database, rules(1), 1)
    await write(database, rules(1, start=2), 2)
    site.server.query("UPDATE edit_batch SET format = 99")
    with pytest.raises(Failed, match="of a newer egressd"):
        await database.entries_after(0)
    site.server.query(
        "UPDATE edit_batch SET format = 1, edits = (SELECT edits FROM edit_batch LIMIT 1)"
    )
    with pytest.raises(Failed, match="was not sealed with the site's key"):
        await database.entries_after(0)
    await database.close()


async def test_the_replica_follows(site: Site, tmp_path: Path, opened: OpenDatabase) -> None:
    mine, others = site.store(tmp_path / "a"), site.second().store(tmp_path / "b")
    for store in (mine, others):
        await store.open()
        await store.load()
    await write(mine, EVERYTHING, 1)
    await write(mine, rules(3, start=10), 2)
    state = followed(EMPTY, await others.entries_after(0))
    assert state == await mine.load()
    await write(others, rules(1, start=20), 3)
    for store in (mine, others):
        await store.close()
    async with opened(tmp_path / "b") as replica:
        assert await replica.load() == state.with_edits(rules(1, start=20), 3)


async def test_a_hint_follows_each_change(site: Site) -> None:
    database, link = await founded(site), site.second().link()
    hints = link.hints()
    assert await anext(hints) == 0
    await write(database, rules(1), 1)
    assert await anext(hints) == 1
    await link.join(0, "")
    await link.acknowledge(1, ("tokyo",))
    assert await anext(hints) == 0
    (seen,) = [seen for seen in (await link.read()).members if seen.name == "b"]
    assert (seen.applied, seen.blocked) == (1, ("tokyo",))
    waiting = asyncio.ensure_future(anext(hints))
    site.server.query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
    )
    with pytest.raises(Failed, match="listen to the site's database"):
        await waiting
    await link.close()
    await database.close()

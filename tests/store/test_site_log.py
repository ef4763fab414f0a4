"""The log of a site: what its members read of each other's changes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import psycopg
import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed, VersionConflict, WriteConflict
from egressd.model.nouns import Settings
from egressd.model.trial import ChangeTrial
from egressd.store import edit_log
from egressd.store.postgres.database import SiteDatabase
from egressd.store.postgres.schema import migrate
from tests.store.members import until
from tests.store.rig import (
    EVERYTHING,
    NODE,
    SECRETS,
    OpenDatabase,
    Site,
    newer_schema,
    rules,
    write,
)
from tests.support.postgres import OWNER

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
    assert await other.entries_after(0) is None  # it has not read the state that they lead from
    state = await other.load()
    await write(database, EVERYTHING, 1)
    state = followed(state, await other.entries_after(0))
    await write(other, rules(2, start=10), 2)
    state = state.with_edits(rules(2, start=10), 2)
    entries = await database.entries_after(1)
    assert [entry.revision for entry in entries or ()] == [2]
    await write(database, [Edit("nodes", 7, None)], 3)
    state = followed(state, await other.entries_after(2))
    for reader in (database, other):
        assert await reader.load() == state
        assert await reader.entries_after(3) == []
        await reader.close()


async def test_a_rolled_back_change_is_in_no_log(site: Site) -> None:
    database = await founded(site)
    await database.begin(rules(1), 1)
    await database.rollback()
    assert await database.entries_after(0) == []
    await write(database, rules(1), 1)
    await database.close()


async def reader_of(site: Site) -> SiteDatabase:
    """Return a database that has read the site's state of now."""
    reader = site.database()
    await reader.open()
    await reader.load()
    return reader


async def test_a_log_that_was_pruned_is_not_followed(site: Site) -> None:
    database, link = await founded(site), site.link()
    readers = [await reader_of(site)]
    for revision in (1, 2, 3):
        await write(database, rules(1, start=revision), revision)
        readers.append(await reader_of(site))
    assert readers[2].point is not None
    await link.join(readers[2].point, "")
    await link.prune()
    for revision in (0, 1):
        assert await readers[revision].entries_after(revision) is None
    assert [entry.revision for entry in await readers[2].entries_after(2) or ()] == [3]
    assert site.server.query("SELECT count(*) FROM edit_batch", site.role) == [["2"]]
    late = readers[1]  # its next load finds the changes that the log has lost
    assert await late.load() == await database.load()
    site.server.query("UPDATE change SET at = now() - interval '31 days'")
    await link.prune()
    assert site.server.query("SELECT revision FROM change", site.role) == [["3"]]
    await write(database, rules(1, start=4), 4)
    assert [entry.revision for entry in await late.entries_after(3) or ()] == [4]
    await link.close()
    for each in (database, *readers):
        await each.close()


async def test_a_big_log_is_pruned_in_parts(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The third part takes longer than a statement may."""
    database, link = await founded(site), site.link()
    for revision in range(1, 8):
        await write(database, rules(1, start=revision), revision)
    monkeypatch.setattr("egressd.store.postgres.site_link.PRUNED_MAX", 2)
    assert database.point is not None
    await link.join(database.point, "")
    lock = psycopg.connect(site.server.conninfo(OWNER))
    lock.execute("SELECT FROM change WHERE revision = 4 FOR UPDATE")
    with pytest.raises(Failed, match="statement timeout"):
        await link.prune()
    left = "SELECT min(revision) FROM change"
    assert site.server.query(left, site.role) == [["4"]]
    lock.close()
    await link.prune()
    assert site.server.query(left, site.role) == [["7"]]
    await link.close()
    await database.close()


async def test_the_log_is_kept_for_a_member_that_is_away(site: Site) -> None:
    database, link = await founded(site), site.link()
    reader = await reader_of(site)
    site.second()
    await write(database, rules(1), 1)
    assert database.point is not None
    await link.join(database.point, "")
    await link.prune()
    assert len(await reader.entries_after(0) or ()) == 1
    await link.close()
    for each in (database, reader):
        await each.close()


async def test_another_history_is_neither_followed_nor_written_to(site: Site) -> None:
    database = await founded(site)
    await write(database, rules(1), 1)
    site.save()
    await write(database, rules(1, start=2), 2)
    site.restore()
    with pytest.raises(Failed, match="its history is another one"):  # it is at an older revision
        await database.entries_after(2)
    other = await reader_of(site)
    await write(other, rules(1, start=3), 2)
    for read in (lambda: database.entries_after(2), database.load):
        with pytest.raises(Failed, match="its history is another one"):  # at the same one
            await read()
    with pytest.raises(Failed, match="its history is another one"):
        await write(database, rules(1, start=4), 3)
    await write(other, rules(1, start=5), 3)
    assert set((await other.load()).rules) == {1, 3, 5}
    for each in (database, other):
        await each.close()


async def test_another_history_is_not_taken_for_damage(site: Site) -> None:
    """Past fault: it has the name that is written, so it was said that the data is damaged."""
    database = await founded(site)
    await write(database, rules(1), 1)
    site.save()
    await write(database, rules(1, start=2), 2)
    site.restore()
    other = await reader_of(site)
    await write(other, [Edit("nodes", NODE.id, NODE)], 2)
    node = msgspec.structs.replace(NODE, id=NODE.id + 1)
    with pytest.raises(Failed, match="its history is another one") as error:
        await write(database, [Edit("nodes", node.id, node)], 3)
    assert error.type is Failed
    await write(other, rules(1, start=3), 3)
    assert set((await other.load()).nodes) == {NODE.id}
    for each in (database, other):
        await each.close()


async def test_a_change_that_is_late_waits_for_no_row(site: Site) -> None:
    """Past fault: what followed its first statement was executed in vain, and in the way."""
    database = await founded(site)
    other = await reader_of(site)
    await write(database, rules(1), 1)
    assert await other.entries_after(0)
    await other.begin(rules(1, start=2), 2)
    late = asyncio.create_task(database.begin(rules(1), 2))
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    await until(lambda: bool(site.server.query(waiting)))
    with psycopg.connect(site.server.conninfo(OWNER)) as holder:
        holder.execute("SELECT FROM rules FOR UPDATE")
        await other.commit()
        async with asyncio.timeout(5):
            with pytest.raises(WriteConflict):
                await late
    for each in (database, other):
        await each.close()


async def test_a_member_without_a_site_follows_nothing(site: Site) -> None:
    database = await founded(site)
    site.server.query(f"UPDATE member SET is_revoked = true WHERE role_name = '{site.role}'")
    with pytest.raises(Failed):
        await database.entries_after(0)
    await database.close()


async def test_a_state_is_read_as_it_was_at_one_moment(site: Site) -> None:
    """A change is made between the first table that is read and the last one."""
    database = await founded(site)
    await write(database, rules(1), 1)
    before = await database.load()
    other = site.database()
    await other.open()
    lock = psycopg.connect(site.server.conninfo(OWNER))
    lock.execute("LOCK TABLE whitelist")
    reading = asyncio.create_task(other.load())
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    while not await asyncio.to_thread(site.server.query, waiting):
        assert not reading.done()
    await write(database, [*rules(1), *rules(1, start=2)], 2)
    lock.close()
    assert await reading == before
    assert other.point is not None
    assert other.point.revision == 1
    for each in (database, other):
        await each.close()


async def test_a_schema_without_histories_gets_one(site: Site) -> None:
    """The log of an earlier version may lack the last change."""
    database = await founded(site)
    await write(database, rules(1), 1)
    await database.close()
    site.server.query(
        "DELETE FROM change;"
        " ALTER TABLE beat DROP COLUMN batch, DROP COLUMN attempt, DROP COLUMN role_since;"
        " ALTER TABLE member DROP COLUMN key_envelope; DROP TABLE shared_access;"
        " DROP TABLE undo_log, trial, alert_channels, target_groups, subscriptions;"
        " ALTER TABLE nodes DROP COLUMN subscription, DROP COLUMN name_there,"
        " DROP COLUMN gone_at;"
        " ALTER TABLE rules DROP COLUMN bound_mac;"
        " ALTER TABLE nodes DROP COLUMN change_ip_url, DROP COLUMN change_ip_via;"
        " UPDATE alembic_version SET version_num = 'p0003'"
    )
    await asyncio.to_thread(migrate, site.server.conninfo(OWNER))
    readers = [await reader_of(site) for _ in range(2)]
    state = await readers[0].load()
    await write(readers[1], rules(1, start=2), 2)
    assert followed(state, await readers[0].entries_after(1)) == await readers[1].load()
    for each in readers:
        await each.close()


async def test_the_log_has_no_secret_in_clear(site: Site) -> None:
    database = await founded(site)
    await write(database, EVERYTHING, 1)
    for secret in SECRETS:
        found = f"SELECT 1 FROM edit_batch WHERE position('{secret}'::bytea IN edits) > 0"
        assert not site.server.query(found, site.role)
    await database.close()


async def test_an_entry_that_was_moved_or_is_newer_is_refused(site: Site) -> None:
    database = await founded(site)
    reader = await reader_of(site)
    await write(database, rules(1), 1)
    await write(database, rules(1, start=2), 2)
    site.server.query("UPDATE edit_batch SET format = 99")
    with pytest.raises(Failed, match="of a newer egressd"):
        await reader.entries_after(0)
    site.server.query(
        "UPDATE edit_batch SET format = 1, edits = (SELECT edits FROM edit_batch LIMIT 1)"
    )
    with pytest.raises(Failed, match="was not sealed with the site's key"):
        await reader.entries_after(0)
    for each in (database, reader):
        await each.close()


def test_the_format_of_edits_is_the_oldest_that_has_them() -> None:
    assert edit_log.format_of([]) == edit_log.format_of([Edit("lines", 1, None)]) == 1
    assert edit_log.format_of([*rules(1), Edit("lines", 1, None)]) == 2
    assert edit_log.format_of(EVERYTHING) == edit_log.FORMAT


async def test_a_change_that_a_member_could_not_read_is_not_stored(site: Site) -> None:
    database, other = await founded(site), site.second()
    reader = await reader_of(other)
    older = f"UPDATE member SET format_max = {{}} WHERE role_name = '{other.role}'"
    site.server.query(older.format(edit_log.FORMAT - 1))
    newest = [Edit("subscriptions", 6, None)]
    with pytest.raises(VersionConflict, match="b has an older egressd, which cannot read this"):
        await write(database, newest, 1)
    assert await reader.entries_after(0) == []
    await write(database, rules(1), 1)
    ((written,),) = site.server.query("SELECT max(format) FROM edit_batch", site.role)
    assert int(written) < edit_log.FORMAT
    assert [entry.revision for entry in await reader.entries_after(0) or ()] == [1]
    site.server.query(older.format(edit_log.FORMAT))
    await write(database, newest, 2)
    for each in (database, reader):
        await each.close()


async def test_a_member_writes_nothing_to_a_schema_for_newer_ones(site: Site) -> None:
    """It is connected since before the migration, and follows what it can read."""
    database = await founded(site)
    reader = await reader_of(site)
    await write(database, rules(1), 1)
    with newer_schema(site.server):
        with pytest.raises(VersionConflict, match="of a newer egressd: upgrade this one"):
            await write(database, rules(1, start=2), 2)
        assert [entry.revision for entry in await reader.entries_after(0) or ()] == [1]
        with pytest.raises(Failed, match="of a newer egressd: upgrade this one"):
            await reader.load()
    await write(database, rules(1, start=2), 2)
    for each in (database, reader):
        await each.close()


async def test_a_trial_begins_at_the_newest_state_of_the_site_alone(site: Site) -> None:
    """Past fault: a member that was behind, or older than the schema, stored the state that it
    knew. The trial's end would have taken back what others had changed before it began.
    """
    database = await founded(site)
    reader = await reader_of(site.second())
    await write(database, rules(1), 1)
    state = EMPTY.with_edits(rules(1), 1)
    begun = ChangeTrial(began_at=0, minutes=1, who="", revision=0)
    now = msgspec.structs.replace(begun, revision=1)
    with pytest.raises(Failed, match="at revision 1, and this box at 0"):
        await reader.begin_trial(begun, EMPTY)
    with newer_schema(site.server):
        with pytest.raises(VersionConflict, match="of a newer egressd: upgrade this one"):
            await database.begin_trial(now, state)
        assert await database.trial() is None
    assert await database.begin_trial(now, state)
    assert await reader.trial_state() == state
    for each in (database, reader):
        await each.close()


async def test_a_migration_waits_for_a_change_that_is_under_way(site: Site) -> None:
    database = await founded(site)
    await database.begin(rules(1), 1)
    migrating = asyncio.create_task(asyncio.to_thread(migrate, site.server.conninfo(OWNER)))
    waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    while not await asyncio.to_thread(site.server.query, waiting):
        assert not migrating.done()
    await database.commit()
    await migrating
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


async def test_a_notification_of_anything_is_no_more_than_a_hint(site: Site) -> None:
    link = site.link()
    hints = link.hints()
    assert await anext(hints) == 0
    number = site.server.query("SELECT egressd_site()", site.role)[0][0]
    for payload, hint in (
        ("9" * 5000, 0),  # more digits than Python converts
        ("٣", 0),
        ("-1", 0),
        ("", 0),
        ("9" * 19, 10**19 - 1),
        ("3", 3),
    ):
        site.server.query(f"SELECT pg_notify('egressd_{number}', '{payload}')")
        assert await anext(hints) == hint
    await link.close()


async def test_a_hint_follows_each_change(site: Site) -> None:
    database, link = await founded(site), site.second().link()
    hints = link.hints()
    assert await anext(hints) == 0
    await write(database, rules(1), 1)
    assert await anext(hints) == 1
    assert database.point is not None
    await link.join(database.point, "")
    await link.acknowledge(database.point, ("tokyo",))
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

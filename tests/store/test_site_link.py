"""A member's link to the others: beats, fences, and the lock that orders joins with changes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import psycopg
import pytest

from egressd.model.desired import DesiredState
from egressd.model.errors import Failed
from egressd.model.site import MemberSeen, SiteReading, StatePoint
from egressd.store import edit_log
from egressd.store.postgres.connection import whole_conninfo
from egressd.store.postgres.database import SiteDatabase
from egressd.store.postgres.schema import revoke_member
from egressd.store.postgres.site_link import LinkSession, SiteLink
from tests.store.lossy_proxy import lossy_proxy
from tests.store.members import until
from tests.store.rig import Site, rules, write
from tests.support.postgres import OWNER

pytestmark = pytest.mark.slow


@asynccontextmanager
async def pair(site: Site) -> AsyncIterator[tuple[SiteDatabase, SiteLink, SiteLink]]:
    """Yield the database of the first member, and both members' links."""
    database, mine, others = site.database(), site.link(), site.second().link()
    await database.open()
    await database.found(DesiredState(), "generation")
    yield database, mine, others
    for each in (mine, others, database):
        await each.close()


def point(database: SiteDatabase) -> StatePoint:
    """Return the state that `database` has read or written last."""
    assert database.point is not None
    return database.point


def named(reading: SiteReading, name: str) -> MemberSeen:
    (seen,) = [seen for seen in reading.members if seen.name == name]
    return seen


async def test_a_member_beats_once_it_has_joined(site: Site) -> None:
    async with pair(site) as (database, mine, others):
        first = point(database)
        assert not (await mine.beat(first, "")).is_beaten
        await write(database, rules(1), 1)
        assert await mine.join(first, "") == 1
        before = named(await others.read(), "a")
        assert (await mine.beat(point(database), "active", ("hk",))).is_beaten
        reading = await others.read()
        after = named(reading, "a")
        assert (reading.head, reading.me) == (1, named(reading, "b").id)
        assert (before.applied, after.applied, after.role) == (0, 1, "active")
        # Past fault: a beat that overtook the acknowledgement had the targets of the change before.
        assert (before.blocked, after.blocked) == ((), ("hk",))
        assert after.n == (before.n or 0) + 1
        assert after.version == "1"
        assert site.server.query(
            f"SELECT format_max FROM member WHERE role_name = '{site.role}'"
        ) == [[str(edit_log.FORMAT)]]
        assert named(reading, "b").n is None


async def test_the_time_of_a_role_is_that_of_its_change(site: Site) -> None:
    async with pair(site) as (database, mine, others):
        here = point(database)
        await mine.join(here, "standby")
        site.server.query("UPDATE beat SET role_since = '2026-11-20 22:58:40+00'")
        await mine.beat(here, "standby")
        await mine.join(here, "standby")
        assert named(await others.read(), "a").role_since == "2026-11-20T22:58:40Z"
        await mine.beat(here, "active")
        later = named(await others.read(), "a").role_since
        assert later is not None
        assert later > "2026-11-29"


async def test_a_silent_member_is_fenced_unless_it_has_beaten(site: Site) -> None:
    async with pair(site) as (database, mine, others):
        await mine.join(point(database), "")
        seen = named(await others.read(), "a")
        await mine.beat(point(database), "")
        await others.fence_quiet(seen.id, seen.n or 0)
        assert (await mine.beat(point(database), "")).is_beaten
        seen = named(await others.read(), "a")
        await others.fence_quiet(seen.id, seen.n or 0)
        assert named(await others.read(), "a").is_fenced
        assert not (await mine.beat(point(database), "")).is_beaten
        await mine.join(point(database), "")
        assert (await mine.beat(point(database), "")).is_beaten


async def test_a_late_member_is_fenced_unless_it_has_the_change(site: Site) -> None:
    async with pair(site) as (database, mine, others):
        await write(database, rules(1), 1)
        await mine.join(point(database), "")
        seen = named(await others.read(), "a")
        await others.fence_late(seen.id, 1)
        assert (await mine.beat(point(database), "")).is_beaten
        await others.fence_late(seen.id, 2)
        assert not (await mine.beat(point(database), "")).is_beaten


async def test_a_member_of_another_history_neither_joins_nor_beats(site: Site) -> None:
    async with pair(site) as (database, mine, others):
        await write(database, rules(1), 1)
        site.save()
        await write(database, rules(1, start=2), 2)
        old = point(database)
        await mine.join(old, "")
        assert named(await others.read(), "a").applied == 2
        site.restore()
        other = site.database()
        await other.open()
        await other.load()
        for start in (3, 4):
            reading = await mine.beat(old, "")
            assert (reading.is_beaten, reading.is_in_log) == (False, False)
            assert named(reading, "a").applied == -1
            with pytest.raises(Failed, match="its history is another one"):
                await mine.join(old, "")
            await write(other, rules(1, start=start), start - 1)
        await others.fence_late(reading.me, 3)
        assert named(await others.read(), "a").is_fenced
        await mine.join(point(other), "")
        assert (await mine.beat(point(other), "")).is_beaten
        await other.close()


async def test_an_acknowledgement_never_falls(site: Site) -> None:
    async with pair(site) as (database, mine, others):
        points = [point(database)]
        for revision in (1, 2):
            await write(database, rules(1, start=revision), revision)
            points.append(point(database))
        await mine.join(points[0], "")
        await mine.acknowledge(points[2], ())
        await mine.beat(points[0], "")
        await mine.acknowledge(points[1], ("late",))
        seen = named(await others.read(), "a")
        assert (seen.applied, seen.blocked) == (2, ())


async def test_a_join_waits_for_a_change_that_is_under_way(site: Site) -> None:
    async with pair(site) as (database, mine, others):
        first = point(database)
        await database.begin(rules(1), 1)
        joining = asyncio.create_task(others.join(first, ""))
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not await asyncio.to_thread(site.server.query, waiting):
            assert not joining.done()
        assert named(await mine.read(), "b").n is None
        await database.commit()
        assert await joining == 1
        assert named(await mine.read(), "b").n is not None


async def test_after_a_crash_of_the_server_a_member_joins_anew(site: Site) -> None:
    async with pair(site) as (database, mine, others):
        await mine.join(point(database), "")
        await asyncio.to_thread(site.server.kill)
        await asyncio.to_thread(site.server.start)
        assert not (await mine.beat(point(database), "")).is_beaten
        assert named(await others.read(), "a").n is None
        await mine.join(point(database), "")
        assert (await mine.beat(point(database), "")).is_beaten


async def test_a_link_without_use_outlives_a_restart_of_the_server(site: Site) -> None:
    async with pair(site) as (database, mine, _):
        here = point(database)
        await mine.announce(1)
        assert (await mine.read()).is_in_log is False
        for end in (site.server.stop, site.server.kill):
            await asyncio.to_thread(end)
            await asyncio.to_thread(site.server.start)
            await mine.announce(2)
            assert (await mine.read(here)).is_in_log


async def test_a_task_that_is_cancelled_ends_though_the_connection_breaks(
    site: Site, tmp_path: Path
) -> None:
    """psycopg cancels the statement first, and waits for that."""
    with lossy_proxy(site.server, tmp_path) as proxy:
        session = LinkSession(whole_conninfo(f"host={tmp_path} user={site.role} dbname=postgres"))
        task = asyncio.create_task(session.execute("SELECT pg_sleep(60)", {}))
        asleep = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        await until(lambda: bool(site.server.query(asleep)))
        task.cancel()
        proxy.close()
    with pytest.raises(asyncio.CancelledError):
        await task
    await session.close()


class _Deaf:
    """A connection of an older psycopg, which ends when its task is cancelled."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()

    async def execute(self, _statement: str, _values: object) -> None:
        self.is_asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise psycopg.OperationalError("it has ended") from None

    async def close(self) -> None:
        pass


async def test_a_cancellation_that_psycopg_loses_ends_the_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = _Deaf()

    async def connect(_conninfo: str) -> _Deaf:
        return connection

    monkeypatch.setattr("egressd.store.postgres.site_link._connect", connect)
    task = asyncio.create_task(LinkSession("").execute("SELECT 1", {}))
    await connection.is_asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_member_notices_another_box_in_its_place(site: Site) -> None:
    async with pair(site) as (database, mine, _others):
        await mine.join(point(database), "")
        clone = site.link()
        await clone.join(point(database), "")
        for _ in range(2):
            with pytest.raises(Failed, match="another box is this member"):
                await mine.beat(point(database), "")
        assert (await clone.beat(point(database), "")).is_beaten
        await clone.close()


async def test_a_beat_does_not_wait_for_a_read(site: Site) -> None:
    async with pair(site) as (database, mine, _others):
        await mine.join(point(database), "")
        lock = psycopg.connect(site.server.conninfo(OWNER))
        lock.execute("LOCK TABLE beat IN ACCESS EXCLUSIVE MODE")
        reads = [asyncio.create_task(mine.read()) for _ in range(100)]
        waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        while not await asyncio.to_thread(site.server.query, waiting):
            assert not any(read.done() for read in reads)
        beat = asyncio.create_task(mine.beat(point(database), ""))
        beating = f"{waiting} AND query LIKE '%UPDATE beat%'"
        while not await asyncio.to_thread(site.server.query, beating):
            assert not any(read.done() for read in reads), "the beat waits for a read"
        lock.close()
        assert (await beat).is_beaten
        await asyncio.gather(*reads)


async def test_only_a_single_member_opens_its_gate(site: Site) -> None:
    link = site.link()
    assert await link.open_gate()
    assert named(await link.read(), "a").is_ungated
    other = site.second().link()
    assert not await link.open_gate()
    assert not await other.open_gate()
    await link.close_gate()
    assert not named(await link.read(), "a").is_ungated
    revoke_member(site.server.conninfo(OWNER), site=site.name, member="b")
    assert await link.open_gate()
    with pytest.raises(Failed):
        await other.read()
    for each in (link, other):
        await each.close()


async def test_a_site_without_a_state_is_not_joined(site: Site) -> None:
    link = site.link()
    with pytest.raises(Failed, match="no state yet"):
        await link.join(StatePoint(0, str(uuid.uuid4())), "")
    await link.close()

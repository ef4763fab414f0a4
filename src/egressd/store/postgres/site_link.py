"""A member's beats, its acknowledgements, and the hints that it gets of the others.

All is done on connections of its own, one of them for beats alone, so that a beat never waits for a
change, or for those who wait for one. A beat that a crash of the server loses is lost with its
whole table, which is unlogged.
"""

# ruff: noqa: S608 - the statements are made of parts that are all here

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row
from psycopg.types.json import Json

from egressd.model.errors import Failed
from egressd.model.site import MemberSeen, SiteReading, StatePoint
from egressd.store import edit_log
from egressd.store.postgres.connection import (
    IS_NEWER,
    OTHER_HISTORY,
    channel_of,
    has_ended,
    session_settings,
    whole_conninfo,
)

STATEMENT_MS: Final = 2000
"""Milliseconds that a statement may take, half of a lease: a later answer is of no use."""
KEPT_DAYS: Final = 30
"""Days that the log keeps an entry that a member has not applied."""
PRUNED_MAX: Final = 500
"""Entries that one statement deletes, so that it ends in time."""
_DIGITS_MAX: Final = 19
"""The digits of the largest BIGINT."""
_N_MAX: Final = 1 << 60
"""The bound of a member's first number, which is random: no two are the same."""

_IN_LOG: Final = "EXISTS (SELECT FROM change WHERE change.revision = {} AND change.batch = {})"
_MINE_IN_LOG: Final = _IN_LOG.format("%(applied)s", "%(batch)s")
_ME: Final = "(SELECT id FROM member WHERE role_name = session_user)"


def _reading(is_beaten: str) -> str:
    """Return the query of what is known of all members; `is_beaten` is an SQL condition."""
    return (
        "SELECT member.id, name, role_name = session_user AS is_me, is_revoked, is_ungated,"
        " version, n, coalesce(is_fenced, false) AS is_fenced,"
        " coalesce(role, '') AS role, coalesce(blocked, '[]') AS blocked, attempt,"
        " to_char(role_since AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"') AS role_since,"
        # What a member had in force of another history is of no use.
        f" CASE WHEN {_IN_LOG.format('beat.applied', 'beat.batch')} THEN applied ELSE -1 END"
        " AS applied,"
        f" {_MINE_IN_LOG} AS is_in_log,"
        f" {IS_NEWER} AS is_outdated,"
        f" coalesce((SELECT revision FROM meta), 0) AS head, {is_beaten} AS is_beaten"
        " FROM member LEFT JOIN beat ON beat.member = member.id ORDER BY member.id"
    )


_LOOK: Final = _reading("false")
_BEAT: Final = (
    "WITH mine AS (UPDATE beat SET"
    " n = n + 1, applied = greatest(applied, %(applied)s),"
    " role = %(role)s, role_since = CASE WHEN role = %(role)s THEN role_since ELSE now() END,"
    " batch = CASE WHEN applied <= %(applied)s THEN %(batch)s ELSE batch END,"
    " blocked = CASE WHEN applied <= %(applied)s THEN %(blocked)s ELSE blocked END"
    f" WHERE member = {_ME} AND n = %(n)s AND NOT is_fenced AND {_MINE_IN_LOG} RETURNING n) "
) + _reading("EXISTS (SELECT FROM mine)")
# The lock orders this with every change: a later one finds this member in `beat`, and waits for it;
# an earlier one is in the revision that is returned.
_HEAD: Final = f"SELECT revision, {_MINE_IN_LOG} AS is_in_log FROM meta FOR SHARE"
_JOIN: Final = (
    "INSERT INTO beat (member, n, applied, batch, is_fenced, role, role_since, attempt)"
    f" VALUES ({_ME}, %(n)s, %(applied)s, %(batch)s, false, %(role)s, now(), %(attempt)s)"
    " ON CONFLICT (site, member) DO UPDATE SET n = excluded.n, applied = excluded.applied,"
    " batch = excluded.batch, is_fenced = false, role = excluded.role, blocked = '[]',"
    " role_since = CASE WHEN beat.role = excluded.role THEN beat.role_since ELSE now() END,"
    " attempt = excluded.attempt"
)
_INTRODUCE: Final = (
    "UPDATE member SET version = %(version)s, format_max = %(format)s"
    " WHERE role_name = session_user AND (version, format_max) <> (%(version)s, %(format)s)"
)
_FENCE_QUIET: Final = "UPDATE beat SET is_fenced = true WHERE member = %(member)s AND n = %(n)s"
_FENCE_LATE: Final = (
    "UPDATE beat SET is_fenced = true WHERE member = %(member)s AND (applied < %(revision)s"
    f" OR NOT {_IN_LOG.format('beat.applied', 'beat.batch')})"
)
_ACKNOWLEDGE: Final = (
    "WITH mine AS (UPDATE beat SET"
    " applied = %(applied)s, batch = %(batch)s, blocked = %(blocked)s, attempt = %(attempt)s"
    f" WHERE member = {_ME} AND applied <= %(applied)s RETURNING site)"
    " SELECT pg_notify('egressd_' || site, 'applied') FROM mine"
)
_ANNOUNCE: Final = f"UPDATE beat SET attempt = %(attempt)s WHERE member = {_ME}"
_OPEN_GATE: Final = (
    "UPDATE member SET is_ungated = true WHERE role_name = session_user AND NOT EXISTS ("
    " SELECT FROM member AS other WHERE other.role_name <> session_user AND NOT other.is_revoked)"
)
_CLOSE_GATE: Final = "UPDATE member SET is_ungated = false WHERE role_name = session_user"
_PRUNE: Final = (
    "WITH gone AS ("
    "  DELETE FROM change WHERE revision IN (SELECT revision FROM change WHERE"
    # The entry before the ones that are kept stays: it says to which history they belong.
    "    revision < greatest(("
    "      SELECT max(revision) FROM change WHERE at < now() - make_interval(days => %(days)s)), ("
    "      SELECT min(coalesce(applied, 0)) FROM member LEFT JOIN beat ON beat.member = member.id"
    "      WHERE NOT is_revoked))"
    "    ORDER BY revision LIMIT %(most)s)"
    "  RETURNING batch)"
    " DELETE FROM edit_batch WHERE id IN (SELECT batch FROM gone)"
)

Values = Mapping[str, Any]


class LinkSession:
    """A connection that is made when it is used, and anew after a failure."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._open: psycopg.AsyncConnection[Any] | None = None
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Have the connection for the block alone. Raises Failed."""
        async with self._lock:
            try:
                if self._open is not None and has_ended(self._open):
                    await self._drop()
                if self._open is None:
                    self._open = await _connect(self._conninfo)
                yield self._open
            except psycopg.Error as error:
                await self._drop()
                _end_if_cancelled()
                raise Failed("use the site's database", str(error).strip()) from error
            except BaseException:
                await self._drop()  # cancelled in the middle of an answer, for example
                raise

    async def execute(self, statement: str, values: Values) -> None:
        """Execute a statement that has no rows. Raises Failed."""
        async with self.connected() as connection:
            await connection.execute(statement, values)

    async def close(self) -> None:
        """Close the connection. The next use connects again."""
        async with self._lock:
            await self._drop()

    async def _drop(self) -> None:
        dropped, self._open = self._open, None
        if dropped is not None:
            with suppress(psycopg.Error):
                await dropped.close()


class SiteLink:
    """A member of a site among the others. Every method raises Failed, and connects again then."""

    def __init__(self, conninfo: str, *, version: str) -> None:
        self._conninfo = whole_conninfo(conninfo)
        self._version = version
        self._n = 0
        self._beats = LinkSession(self._conninfo)
        """The session of the beats, which wait for nothing else."""
        self._looks = LinkSession(self._conninfo)
        """The session of `read`, for which a change waits that has just been acknowledged."""
        self._others = LinkSession(self._conninfo)

    async def close(self) -> None:
        """Close the connections."""
        await self._beats.close()
        await self._looks.close()
        await self._others.close()

    async def read(self, point: StatePoint | None = None) -> SiteReading:
        """Return what the database says of all members now, with `point` in force here."""
        return await self._reading(self._looks, _LOOK, _values(point))

    async def beat(
        self, point: StatePoint, role: str, blocked: tuple[str, ...] = ()
    ) -> SiteReading:
        """Say that this member lives and has `point` in force, but for targets that are `blocked`;
        return what `read` does. It may come before the acknowledgement of that, so it says as much.

        The beat is not taken from a member that is fenced, that has not joined since the server's
        last crash, or whose `point` is not in the log.
        """
        n, self._n = self._n, 0  # an answer that is lost may have been a beat
        reading = await self._reading(
            self._beats, _BEAT, {**_values(point), "role": role, "n": n, "blocked": Json(blocked)}
        )
        mine = next(seen for seen in reading.members if seen.id == reading.me)
        if reading.is_beaten:
            self._n = n + 1
        elif n and reading.is_in_log and not mine.is_fenced and mine.n not in (None, n):
            self._n = n
            raise Failed("be a member of the site", "another box is this member: its role is used")
        # The others are no beats: without a row, fenced (with this very number, if the row shows
        # the moment before), or with a state that is not in the log.
        return reading

    async def join(self, point: StatePoint, role: str, attempt: int | None = None) -> int:
        """Become a member that changes wait for. Return the revision that is to be in force here
        before clients are let through. `attempt` is as in `announce`.

        Raises Failed unless `point`, which is in force here, is in the database's log: then the
        changes from there on lead to the site's state.
        """
        n = 1 + secrets.randbelow(_N_MAX)
        async with self._beats.connected() as connection, connection.transaction():
            found = await (await connection.execute(_HEAD, _values(point))).fetchone()
            if found is None:
                raise Failed("join the site", "it has no state yet")
            if not found.is_in_log or found.revision < point.revision:
                raise Failed("join the site", OTHER_HISTORY)
            values = {**_values(point), "n": n, "role": role, "attempt": attempt}
            await connection.execute(_JOIN, values)
            introduced = {"version": self._version, "format": edit_log.FORMAT}
            await connection.execute(_INTRODUCE, introduced)
        self._n = n
        return int(found.revision)

    async def fence_quiet(self, member: int, n: int) -> None:
        """Take the lease from a member whose last beat is `n`, unless it has beaten since."""
        await self._others.execute(_FENCE_QUIET, {"member": member, "n": n})

    async def fence_late(self, member: int, revision: int) -> None:
        """Take the lease from a member that has not `revision` in force, unless it has by now."""
        await self._others.execute(_FENCE_LATE, {"member": member, "revision": revision})

    async def acknowledge(
        self, point: StatePoint, blocked: tuple[str, ...], attempt: int | None = None
    ) -> None:
        """Say that `point` is in force here, with targets that are not, and perhaps the change
        `attempt`. It follows what was announced before.
        """
        values = {**_values(point), "blocked": Json(blocked), "attempt": attempt}
        await self._others.execute(_ACKNOWLEDGE, values)

    async def announce(self, attempt: int) -> None:
        """Say that a change may be in force here from now on that is not stored yet."""
        await self._others.execute(_ANNOUNCE, {"attempt": attempt})

    async def open_gate(self) -> bool:
        """Say, durably, that this member's kernel lets clients through without a lease. Return
        False, and say nothing, if there is another member.
        """
        # A session of its own: the COMMIT waits for a synchronous standby, no time-out of the
        # server's ends that, and to cancel it takes seconds, too (psycopg's `wait`).
        session = LinkSession(self._conninfo)
        try:
            async with (
                asyncio.timeout(STATEMENT_MS / 1000),
                session.connected() as connection,
                connection.transaction(),
            ):
                await connection.execute("SET LOCAL synchronous_commit = on")
                return (await connection.execute(_OPEN_GATE)).rowcount == 1
        except TimeoutError:
            raise Failed("let clients through without a lease", "the database is slow") from None
        finally:
            await session.close()

    async def close_gate(self) -> None:
        """Say that this member's kernel lets no client through without a lease."""
        await self._beats.execute(_CLOSE_GATE, {})

    async def prune(self) -> None:
        """Delete the log's entries that every member has applied, and those that are too old.

        A part of a big log is deleted even if a later part takes too long.
        """
        deleted = PRUNED_MAX
        while deleted == PRUNED_MAX:
            async with self._others.connected() as connection:
                values = {"days": KEPT_DAYS, "most": PRUNED_MAX}
                deleted = (await connection.execute(_PRUNE, values)).rowcount

    async def hints(self) -> AsyncIterator[int]:
        """Yield the revision of each change soon after it, and 0 after an acknowledgement. The
        first one, 0, says that none is missed from then on.

        Any role that may connect to the database can send them, so they are no more than hints.
        """
        try:
            connection = await _connect(self._conninfo)
            try:
                site = await (await connection.execute("SELECT egressd_site() AS id")).fetchone()
                channel = sql.Identifier(channel_of(site.id if site else 0))
                await connection.execute(sql.SQL("LISTEN {}").format(channel))
                yield 0
                async for hint in connection.notifies():
                    yield _revision_in(hint.payload)
            finally:
                await connection.close()
        except psycopg.Error as error:
            _end_if_cancelled()
            raise Failed("listen to the site's database", str(error).strip()) from error
        raise Failed("listen to the site's database", "the connection has ended")

    async def _reading(self, session: LinkSession, statement: str, values: Values) -> SiteReading:
        async with session.connected() as connection:
            rows = await (await connection.execute(statement, values)).fetchall()
        mine = next((row for row in rows if row.is_me), None)
        if mine is None:
            raise Failed("use the site's database", "this box's role belongs to no member")
        return SiteReading(
            me=mine.id,
            head=mine.head,
            is_in_log=mine.is_in_log,
            is_beaten=mine.is_beaten,
            is_outdated=mine.is_outdated,
            members=tuple(
                MemberSeen(
                    id=row.id,
                    name=row.name,
                    is_revoked=row.is_revoked,
                    is_ungated=row.is_ungated,
                    version=row.version,
                    n=row.n,
                    applied=row.applied,
                    is_fenced=row.is_fenced,
                    role=row.role,
                    blocked=tuple(row.blocked),
                    role_since=row.role_since,
                    attempt=row.attempt,
                )
                for row in rows
            ),
        )


async def _connect(conninfo: str) -> psycopg.AsyncConnection[Any]:
    connection = await psycopg.AsyncConnection.connect(
        conninfo, autocommit=True, row_factory=namedtuple_row
    )
    try:
        await connection.execute(session_settings(STATEMENT_MS, synchronous_commit="off"))
    except BaseException:
        await connection.close()
        raise
    return connection


def _end_if_cancelled() -> None:
    """Raise CancelledError in a task that is cancelled: psycopg up to 3.3.6 raises the fault of a
    connection that ends at that moment in its place.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def _revision_in(payload: str) -> int:
    """Return the revision that a notification names; 0 if it names none."""
    is_revision = len(payload) <= _DIGITS_MAX and payload.isascii() and payload.isdecimal()
    return int(payload) if is_revision else 0


def _values(point: StatePoint | None) -> dict[str, Any]:
    return {
        "applied": -1 if point is None else point.revision,
        "batch": None if point is None else point.batch,
    }

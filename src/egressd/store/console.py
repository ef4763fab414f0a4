"""The console's data in the database: password, sessions, and the record of changes.

It has a connection beside `Database`'s (`ConnectionBeside`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, delete, insert, select, update

from egressd.model.console import ChangeRecord, Session
from egressd.model.wording import sentence_of
from egressd.store.beside import ConnectionBeside
from egressd.store.schema import changes, password, sessions

CHANGES_KEPT: Final = 2000
"""Records of changes that are kept, the latest ones."""


class ConsoleStore:
    """The console's part of the database in `directory`, which `Database.open` has made and
    upgraded.

    Every method raises Failed.
    """

    def __init__(self, directory: Path) -> None:
        self.beside = ConnectionBeside(directory)
        """The connection, for what else is written beside the state."""

    async def password(self) -> str | None:
        """Return the password's hash; None before one was chosen."""
        return await self.beside.do("read the password", read_password)

    async def set_password(self, hash_: str, session: Session) -> None:
        """Store a new hash, and end all sessions but `session`."""
        await self.beside.do("store the password", lambda c: write_password(c, hash_, session))

    async def adopt_password(self, hash_: str) -> None:
        """Store a hash that was made elsewhere, and end all sessions."""
        await self.beside.do("store the password", lambda c: write_password(c, hash_, None))

    async def sessions(self) -> list[Session]:
        """Return all sessions that were not dropped, expired ones too."""
        return await self.beside.do("read the sessions", read_sessions)

    async def add_session(self, session: Session) -> None:
        """Store a new session."""
        await self.beside.do("store a session", lambda c: write_session(c, session))

    async def touch_sessions(self, seen_at: dict[str, int]) -> None:
        """Record the last use of sessions, by key."""
        await self.beside.do("store a session", lambda c: write_seen(c, seen_at))

    async def drop_sessions(self, keys: Iterable[str]) -> None:
        """Delete sessions by key."""
        dropped = list(keys)
        await self.beside.do("end a session", lambda c: drop_sessions(c, dropped))

    async def add_changes(self, records: Sequence[ChangeRecord]) -> None:
        """Add to the record of changes, and delete the oldest ones."""
        await self.beside.do("record a change", lambda c: write_changes(c, records))

    async def changes(self, limit: int) -> list[ChangeRecord]:
        """Return the latest changes, the last one first."""
        return await self.beside.do("read the changes", lambda c: read_changes(c, limit))

    async def close(self) -> None:
        """Close. The object cannot be used afterwards."""
        await self.beside.close()


# --- On a connection, inside a transaction. ------------------------------------------------


def read_password(connection: Connection) -> str | None:
    """Return the password's hash."""
    return connection.execute(select(password.c.hash)).scalar_one_or_none()


def write_password(connection: Connection, hash_: str, session: Session | None) -> None:
    """Replace the hash, and all sessions by `session`."""
    connection.execute(delete(password))
    connection.execute(insert(password), {"id": 0, "hash": hash_})
    connection.execute(delete(sessions))
    if session is not None:
        write_session(connection, session)


def read_sessions(connection: Connection) -> list[Session]:
    """Return all sessions."""
    return [
        msgspec.convert(row, Session) for row in connection.execute(select(sessions)).mappings()
    ]


def write_session(connection: Connection, session: Session) -> None:
    """Add a session."""
    connection.execute(insert(sessions), msgspec.structs.asdict(session))


def write_seen(connection: Connection, seen_at: dict[str, int]) -> None:
    """Record the last use of sessions."""
    for key, at in seen_at.items():
        connection.execute(update(sessions).where(sessions.c.key == key).values(seen_at=at))


def drop_sessions(connection: Connection, keys: Iterable[str]) -> None:
    """Delete sessions."""
    for key in keys:
        connection.execute(delete(sessions).where(sessions.c.key == key))


def write_changes(connection: Connection, records: Sequence[ChangeRecord]) -> None:
    """Add records, and drop all but the latest `CHANGES_KEPT`."""
    rows = [_row(record) for record in records]
    connection.execute(insert(changes), rows)
    oldest_kept = (
        select(changes.c.number)
        .order_by(changes.c.number.desc())
        .offset(CHANGES_KEPT - 1)
        .limit(1)
        .scalar_subquery()
    )
    connection.execute(delete(changes).where(changes.c.number < oldest_kept))


def read_changes(connection: Connection, limit: int) -> list[ChangeRecord]:
    """Return the latest records, the last one first."""
    query = select(changes).order_by(changes.c.number.desc()).limit(limit)
    return [_record(row) for row in connection.execute(query).mappings()]


def _row(record: ChangeRecord) -> dict[str, Any]:
    said = record.text_coded
    return {
        "at": record.at,
        "who": record.who,
        "source": record.source,
        "what": record.what,
        "text": str(record.text),
        "coded": None if said is None else msgspec.to_builtins(said),
        "revision": record.revision,
    }


def _record(row: Mapping[Any, Any]) -> ChangeRecord:
    return ChangeRecord(
        at=row["at"],
        who=row["who"],
        source=row["source"],
        what=row["what"],
        text=sentence_of(row["coded"] or row["text"]),
        revision=row["revision"],
    )

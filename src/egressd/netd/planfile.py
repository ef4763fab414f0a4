"""The last accepted plan on disk, kept so that one change writes one change.

An SQLite database of netd's own (root only): a row per table entry. With
``synchronous=FULL`` a committed change survives power loss. Anything wrong with the file
means no plan: the guard then blocks everybody until the api sends one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from egressd.model.errors import Failed
from egressd.model.plan import PLAN_VERSION, TABLES, Change, Plan

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (
    tbl TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (tbl, key)
) WITHOUT ROWID
"""
_SINGLES = ("floor", "whitelist")


class PlanFile:
    """The plan in a file. Not for use by several threads at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None

    def load(self) -> Plan | None:
        """The stored plan, or None when there is none that can be trusted."""
        try:
            return self._read(self._open())
        except (sqlite3.Error, ValueError, OSError):
            self._discard()
            return None

    @contextmanager
    def writing(self, change: Change, *, must_last: bool = True) -> Iterator[None]:
        """Store `change` durably when the block ends well, not at all otherwise.

        Raises Failed when the file cannot be written, unless it need not last. One that changes
        nothing is not written, so that groups find another node also while the disk is full.
        """
        if change.is_empty and change.base == change.revision:
            yield
            return
        try:
            db = self._open()
            db.execute("BEGIN IMMEDIATE")
            self._write(db, change)
        except (sqlite3.Error, OSError) as error:
            self._abandon()
            if must_last:
                raise Failed("write the plan file", str(error)) from error
            yield
            return
        try:
            yield
        except BaseException:
            self._abandon()
            raise
        try:
            db.execute("COMMIT")
        except sqlite3.Error as error:
            self._abandon()
            if must_last:
                raise Failed("write the plan file", str(error)) from error

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.touch(mode=0o600)
            db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=FULL")
            db.execute(_SCHEMA)
            self._db = db
        return self._db

    def _abandon(self) -> None:
        # Closing rolls back; a connection that met an I/O error is not used again.
        self.close()

    def _discard(self) -> None:
        self.close()
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _read(self, db: sqlite3.Connection) -> Plan | None:
        if db.execute("PRAGMA integrity_check").fetchone() != ("ok",):
            raise ValueError("the plan file is damaged")
        document: dict[str, Any] = {name: {} for name in TABLES}
        for table, key, value in db.execute("SELECT tbl, key, value FROM entry"):
            decoded = msgspec.msgpack.decode(value)
            if table in document:
                document[table][key] = decoded
            else:
                document[key] = decoded
        if "revision" not in document:
            return None
        if document.get("version") != PLAN_VERSION:
            raise ValueError("a plan of another version")
        return msgspec.convert(document, Plan, strict=True)

    def _write(self, db: sqlite3.Connection, change: Change) -> None:
        drops = [(t, key) for t in TABLES for key in getattr(change, t).drop]
        puts = [(t, key, value) for t in TABLES for key, value in getattr(change, t).put.items()]
        puts += [
            ("plan", name, value)
            for name in _SINGLES
            if (value := getattr(change, name)) is not None
        ]
        puts += [("plan", "version", PLAN_VERSION), ("plan", "revision", change.revision)]
        db.executemany("DELETE FROM entry WHERE tbl = ? AND key = ?", drops)
        db.executemany(
            "INSERT OR REPLACE INTO entry VALUES (?, ?, ?)",
            [(table, key, msgspec.msgpack.encode(value)) for table, key, value in puts],
        )

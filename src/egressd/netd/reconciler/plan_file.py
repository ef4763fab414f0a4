"""The last accepted plan on disk, kept so that one change writes one change.

An SQLite database of netd's own (root only): a row per table entry. With
``synchronous=FULL`` a committed change survives power loss. A damaged file counts as no plan: the
guard then blocks every client until the api sends a plan. A file on a full or read-only disk can
still be read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from egressd.model.errors import Failed, Invalid
from egressd.model.plan import PLAN_VERSION, SINGLES, TABLES, Change, Plan, difference
from egressd.netd.reconciler import validation

_SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (
    tbl TEXT NOT NULL, key TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (tbl, key)
) WITHOUT ROWID
"""
_VERSION_WITH_DOCUMENTS: Final = 1
"""`PLAN_VERSION` of the plans that contained engine documents."""
_NO_PLAN: Final = (ValueError, TypeError, RecursionError, Invalid)
"""Errors that reading raises if the file holds something else than a plan."""


class PlanFile:
    """The plan in a file. Several threads must not use it at once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: sqlite3.Connection | None = None
        self._is_log_unsafe = False
        """True if SQLite's log may hold a failed change completely, since only its fsync failed. A
        new connection that reads the log would take that change for stored."""
        self._outdated: Plan | None = None
        """The plan from a file of an older netd, which the next change writes anew."""

    def load(self) -> Plan | None:
        """Return the stored plan, or None if there is none that can be trusted."""
        try:
            return self._read(self._open())
        except _NO_PLAN:
            self._discard()
        except (sqlite3.Error, OSError) as error:
            self.close()
            if not _is_damage(error):
                return self._read_only()
            self._discard()
        return None

    @contextmanager
    def writing(self, change: Change, *, must_last: bool = True) -> Iterator[None]:
        """Store `change` durably if the block succeeds, not at all otherwise.

        Raises Failed when the file cannot be written and `must_last` is set. A change that changes
        nothing is not written, so that groups can change over to another node even while the disk
        is full.
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
            self._is_log_unsafe = True
            self._abandon()
            if must_last:
                raise Failed("write the plan file", str(error)) from error
        else:
            self._is_log_unsafe = False  # this change has overwritten the failed one in the log
            self._outdated = None

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _open(self) -> sqlite3.Connection:
        if self._db is None:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._path.exists():
                self._path.touch(mode=0o600)
            self._db = _connect(self._path)
        return self._db

    def _abandon(self) -> None:
        """Roll back the open change. A connection that met an error is not used again, unless
        `_is_log_unsafe`: its log must not be read anew, so it stays open until the log is emptied
        or overwritten.
        """
        if self._db is None:
            return
        with suppress(sqlite3.Error):
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            if self._is_log_unsafe:
                self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
                self._is_log_unsafe = False
        if not self._is_log_unsafe:
            self.close()

    def _discard(self) -> None:
        self.close()
        with suppress(OSError):
            for file in (self._path, self._log, self._path.with_name(f"{self._path.name}-shm")):
                file.unlink(missing_ok=True)

    @property
    def _log(self) -> Path:
        return self._path.with_name(f"{self._path.name}-wal")

    def _read_only(self) -> Plan | None:
        """Return the plan if the file can only be read; None if part of it is still in the log."""
        try:
            if self._log.exists() and self._log.stat().st_size:
                return None
            uri = f"{self._path.absolute().as_uri()}?mode=ro&immutable=1"
            with closing(sqlite3.connect(uri, uri=True)) as db:
                return self._read(db)
        except (*_NO_PLAN, sqlite3.Error, OSError):
            return None

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
        is_outdated = document.get("version") == _VERSION_WITH_DOCUMENTS
        if is_outdated:
            _bring_up_to_date(document)
        if document.get("version") != PLAN_VERSION:
            raise ValueError("a plan of another version")
        plan = msgspec.convert(document, Plan, strict=True)
        validation.check(difference(Plan(), plan), Plan())
        self._outdated = plan if is_outdated else None
        return plan

    def _write(self, db: sqlite3.Connection, change: Change) -> None:
        if self._outdated is not None:
            db.execute("DELETE FROM entry")
            self._put(db, difference(Plan(), self._outdated))
        self._put(db, change)

    def _put(self, db: sqlite3.Connection, change: Change) -> None:
        drops = [(t, key) for t in TABLES for key in getattr(change, t).drop]
        puts = [(t, key, value) for t in TABLES for key, value in getattr(change, t).put.items()]
        puts += [
            ("plan", name, value)
            for name in SINGLES
            if (value := getattr(change, name)) is not None
        ]
        puts += [("plan", "version", PLAN_VERSION), ("plan", "revision", change.revision)]
        db.executemany("DELETE FROM entry WHERE tbl = ? AND key = ?", drops)
        db.executemany(
            "INSERT OR REPLACE INTO entry VALUES (?, ?, ?)",
            [(table, key, msgspec.msgpack.encode(value)) for table, key, value in puts],
        )


def _bring_up_to_date(document: dict[str, Any]) -> None:
    """Convert a plan of version 1, whose instances were documents of the engine: drop these.

    Clients of an instance are blocked until the api has sent its plan, which is its first request;
    kernel routing, lines and limits stay.
    """
    document["version"] = PLAN_VERSION
    document["instances"], document["groups"] = {}, {}
    document["policy"] = document.pop("floor", {})
    for entry in (document["policy"], *document["egresses"].values()):
        for name, list_name in (("resolver", "resolvers"), ("otherwise", "default_resolvers")):
            if server := entry.pop(name, ""):
                entry[list_name] = [server]


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        # No other process opens the file. Without exclusive locking SQLite would keep an index of
        # its log in a second file, for which a full disk has no room.
        db.execute("PRAGMA locking_mode=EXCLUSIVE")
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=FULL")
        db.execute(_SCHEMA)
    except BaseException:
        db.close()
        raise
    return db


def _is_damage(error: Exception) -> bool:
    """True if the file itself is damaged, rather than the disk failing or being full."""
    if isinstance(error, OSError):
        return False
    kind = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF  # the primary code
    return kind in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)

"""Connections to SQLite, and the detection of a bad database."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool, StaticPool

from egressd.model.errors import Failed

APPLICATION_ID: Final = 0x45475244
"""The id in the file's header (``PRAGMA application_id``): "EGRD"."""

_MAGIC: Final = b"SQLite format 3\0"
_HEADER_BYTES: Final = 100
_APPLICATION_ID: Final = slice(68, 72)
"""The position of the id in the header (sqlite.org/fileformat2.html, section 1.3)."""

_PRAGMAS: Final = (
    # A reader never waits for the writer, and a commit is one fsync.
    "PRAGMA journal_mode = WAL",
    # fsync at every commit: WAL with NORMAL may lose the last ones at power loss
    # (sqlite.org/pragma.html#pragma_synchronous).
    "PRAGMA synchronous = FULL",
    "PRAGMA foreign_keys = ON",
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
)
_BUSY_SECONDS: Final = 5
_DISK: Final = (
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
)
"""Result codes that are unrelated to the content of the file (sqlite.org/rescode.html)."""
_CONTENT: Final = ("22", "23", "XX")
"""Classes of PostgreSQL's error codes that are about stored data: exceptions of data, violated
constraints, and internal errors such as damaged pages (its documentation, Appendix A)."""


class BadDatabase(Failed):
    """The stored data cannot be trusted, and a retry would not help."""


def engine_on(path: Path) -> Engine:
    """Return an engine whose every transaction is a write transaction (``BEGIN IMMEDIATE``).

    The file must exist: SQLite would create an empty one, which would read as "no rules".
    """
    engine = create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=rw",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
        ),
        poolclass=NullPool,
        hide_parameters=True,
    )
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def reader_on(path: Path) -> Engine:
    """Return an engine whose connections only read the existing file `path`, also while another
    writes. Each is new.
    """
    return create_engine(
        "sqlite://",
        creator=lambda: sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro",
            uri=True,
            timeout=_BUSY_SECONDS,
            isolation_level=None,
            check_same_thread=False,
        ),
        poolclass=NullPool,
        hide_parameters=True,
    )


def engine_in_memory() -> Engine:
    """Return an engine with one connection, to a database that is never on disk."""
    engine = create_engine(
        "sqlite://", poolclass=StaticPool, connect_args={"isolation_level": None}
    )
    event.listen(engine, "connect", _configure)
    event.listen(engine, "begin", _begin_immediate)
    return engine


def _configure(connection: sqlite3.Connection, _record: Any) -> None:
    for pragma in _PRAGMAS:
        connection.execute(pragma)


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


@contextmanager
def reported(action: str) -> Iterator[None]:
    """Turn errors of files and databases inside into `Failed`, and errors of the database's content
    into `BadDatabase`.
    """
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error, OSError, ValueError) as error:
        origin = error.orig if isinstance(error, DBAPIError) else error
        kind = Failed if _is_the_disks(origin) else BadDatabase
        raise kind(action, str(origin)) from error


def _is_the_disks(error: BaseException | None) -> bool:
    """True if the error is about the disk or the server, space or permissions, not the stored
    content.
    """
    if isinstance(error, OSError):
        return not isinstance(error, (IsADirectoryError, NotADirectoryError))
    if hasattr(error, "sqlstate"):  # PostgreSQL's; None if there is no connection to it
        return not str(getattr(error, "sqlstate", None)).startswith(_CONTENT)
    return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & 0xFF in _DISK


def check_file(path: Path) -> None:
    """Raise BadDatabase unless `path` begins like a database of egressd's.

    Done before SQLite opens it, which would already change another program's file.
    """
    with path.open("rb") as file:
        check_header(file.read(_HEADER_BYTES), f"the database {path}")


def check_header(content: bytes, what: str) -> None:
    """Raise BadDatabase, which calls the file `what`, unless these bytes begin one of egressd's."""
    if len(content) < _HEADER_BYTES:
        raise BadDatabase(f"read {what}", "it is truncated")
    if not content.startswith(_MAGIC):
        raise BadDatabase(f"read {what}", "it is not a SQLite database")
    if content[_APPLICATION_ID] != APPLICATION_ID.to_bytes(4, "big"):
        raise BadDatabase(f"read {what}", "it is not a database of egressd's")


def check_integrity(execute: Callable[[str], Iterable[Any]], what: str) -> None:
    """Raise BadDatabase, which calls the database `what`, if SQLite finds it damaged."""
    verdict = [str(row[0]) for row in execute("PRAGMA integrity_check(3)")]
    if verdict != ["ok"]:
        told = "; ".join(" ".join(verdict).splitlines())  # a verdict may have several lines
        raise BadDatabase(f"read {what}", f"it is damaged: {told}")


def check_database(connection: Connection, path: Path, known: Collection[str]) -> str:
    """Return the database's schema revision. Raises BadDatabase if it cannot be trusted.

    It cannot if it is damaged, or of a revision that is not in `known`.
    """
    action = f"read the database {path}"
    check_integrity(connection.exec_driver_sql, f"the database {path}")
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'alembic_version'"
    if connection.exec_driver_sql(query).first() is None:
        raise BadDatabase(action, "it is damaged: it does not say which schema it has")
    query = "SELECT version_num FROM alembic_version"
    versions = connection.exec_driver_sql(query).scalars().all()
    if len(versions) != 1:
        raise BadDatabase(action, "it is damaged: it does not say which schema it has")
    version = str(versions[0])
    if version not in known:
        raise BadDatabase(
            action, f"it was written by a newer egressd (schema {version}): upgrade it"
        )
    return version

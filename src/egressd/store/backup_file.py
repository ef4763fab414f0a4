"""The content of a backup, read from a file of unknown origin.

SQLite's file format holds more than rows: a table may be a view that computes without end, and rows
may fire triggers (sqlite.org/security.html, "Defense Against Dark Arts"). So only the list of the
schema is read until that list equals egressd's to the letter, and all reading is bounded.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec
from sqlalchemy import JSON, Boolean, Column, Connection, Integer, create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import StaticPool

from egressd.model import desired
from egressd.model.bounds import BACKUP_MAX, ROWS_MAX
from egressd.model.desired import DesiredState
from egressd.model.nouns import (
    AlertChannel,
    Line,
    Node,
    ProxyService,
    Rule,
    Settings,
    Subscription,
    TargetGroup,
    Whitelist,
)
from egressd.store import schema
from egressd.store.connection import BadDatabase, check_header, check_integrity
from egressd.store.preparation import Revisions
from egressd.store.rows import read_state
from egressd.store.schema_text import Schema, first_difference, schema_of

_VALUE_MAX: Final = 16 * 1024 * 1024
"""Bytes of the longest value: many times the longest whitelist."""
_SQL_MAX: Final = 64 * 1024
"""Bytes of the longest statement, those of the schema included: many times egressd's longest."""
_LIMITS: Final = {
    sqlite3.SQLITE_LIMIT_LENGTH: _VALUE_MAX,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: _SQL_MAX,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 100,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 10,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 8,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 100,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 1000,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
"""Limits of a connection (sqlite.org/limits.html)."""
_PRAGMAS: Final = (
    "PRAGMA trusted_schema = OFF",
    "PRAGMA cell_size_check = ON",
    "PRAGMA temp_store = MEMORY",
)
_STEPS: Final = 100_000
"""Instructions of SQLite between checks of the deadline: some milliseconds."""
_ALLOWED: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ})
_FUNCTIONS: Final = frozenset({"count"})
_CHECKS: Final = frozenset({"integrity_check"})

_VERSION_TABLE: Final = ("table", "alembic_version")
_FORMAT_VERSIONS: Final = slice(18, 20)
_LEGACY: Final = b"\x01\x01"
"""The header's format versions of a database without a write-ahead log (fileformat2.html, 1.3.3):
SQLite opens no other in memory."""


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """The whole content of a backup."""

    revision: int
    nodes: tuple[Node, ...]
    rules: tuple[Rule, ...]
    lines: tuple[Line, ...]
    services: tuple[ProxyService, ...]
    alert_channels: tuple[AlertChannel, ...]
    groups: tuple[TargetGroup, ...]
    subscriptions: tuple[Subscription, ...]
    whitelist: Whitelist
    settings: Settings
    numbers: dict[str, int]
    last_ids: dict[str, int]

    @classmethod
    def of(cls, state: DesiredState) -> Content:
        """Return the content of a state."""
        return cls(
            revision=state.revision,
            nodes=tuple(state.nodes.values()),
            rules=tuple(state.rules.values()),
            lines=tuple(state.lines.values()),
            services=tuple(state.services.values()),
            alert_channels=tuple(state.alert_channels.values()),
            groups=tuple(state.groups.values()),
            subscriptions=tuple(state.subscriptions.values()),
            whitelist=state.whitelist,
            settings=state.settings,
            numbers=dict(state.numbers),
            last_ids=dict(state.last_ids),
        )

    def state(self) -> DesiredState:
        """Return the state, with its indexes."""
        tables: dict[str, dict[Any, Any]] = {
            name: {row.id: row for row in getattr(self, name)} for name in desired.ROW_TABLES
        }
        tables["whitelist"] = {0: self.whitelist}
        tables["settings"] = {0: self.settings}
        tables["numbers"] = self.numbers
        tables["last_ids"] = self.last_ids
        return desired.load(tables, self.revision)


def read_content(content: bytes, revisions: Revisions, seconds: float) -> DesiredState:
    """Return the state in a backup's bytes; that of an older schema is upgraded, in memory.

    Raises BadDatabase if it is no backup of egressd's, was written by a newer one, is damaged, has
    more than `BACKUP_MAX` bytes or `ROWS_MAX` rows in a table, or takes SQLite longer than
    `seconds`; and sqlite3.Error, SQLAlchemyError and ValueError for content that no egressd would
    write.
    """
    check_header(content, "the backup")
    if len(content) > BACKUP_MAX:
        raise BadDatabase("read the backup", f"it has more than {BACKUP_MAX} bytes")
    with _opened(content) as connection, _bounded(connection, seconds):
        with _reading_alone(connection):
            version = _checked_version(connection, revisions)
            check_integrity(connection.execute, "the backup")
            _check_counts(connection)
        return _state(connection, revisions, is_older=version != revisions.newest)


@contextmanager
def _opened(content: bytes) -> Iterator[sqlite3.Connection]:
    """Open a copy of the file in memory, so that it can refer to no other file."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        for limit, most in _LIMITS.items():
            connection.setlimit(limit, most)
        copy = bytearray(content)
        copy[_FORMAT_VERSIONS] = _LEGACY
        connection.deserialize(copy)
        for pragma in _PRAGMAS:
            connection.execute(pragma)
        yield connection
    finally:
        connection.close()


@contextmanager
def _bounded(connection: sqlite3.Connection, seconds: float) -> Iterator[None]:
    """Interrupt statements that take SQLite longer than `seconds`."""
    deadline = time.monotonic() + seconds
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _STEPS)
    try:
        yield
    except (sqlite3.Error, DBAPIError) as error:
        if time.monotonic() <= deadline:
            raise
        raise BadDatabase("read the backup", f"reading it took over {seconds:g} s") from error
    finally:
        connection.set_progress_handler(None, 0)


@contextmanager
def _reading_alone(connection: sqlite3.Connection) -> Iterator[None]:
    """Allow statements only to read tables."""
    connection.set_authorizer(_authorize)
    try:
        yield
    finally:
        connection.set_authorizer(None)


def _authorize(
    action: int, first: str | None, second: str | None, database: str | None, inner: str | None
) -> int:
    """Return whether SQLite may carry out an action (sqlite.org/c3ref/set_authorizer.html).

    `inner` names the view or trigger that requests it; egressd's schema has none.
    """
    is_fine = inner is None and (
        action in _ALLOWED
        or (action == sqlite3.SQLITE_PRAGMA and first in _CHECKS)
        or (action == sqlite3.SQLITE_FUNCTION and second in _FUNCTIONS)
    )
    return sqlite3.SQLITE_OK if is_fine else sqlite3.SQLITE_DENY


def _checked_version(connection: sqlite3.Connection, revisions: Revisions) -> str:
    """Return the revision whose schema the database has, to the letter. Raises BadDatabase."""
    action = "read the backup"
    found, newest = schema_of(connection), revisions.schema_at(revisions.newest)
    if _VERSION_TABLE not in found:
        raise BadDatabase(action, "it is damaged: it does not say which schema it has")
    if found[_VERSION_TABLE] != newest[_VERSION_TABLE]:
        raise BadDatabase(action, _not_ours(found, newest))
    query = "SELECT version_num FROM alembic_version LIMIT 2"
    versions = [version for (version,) in connection.execute(query)]
    if len(versions) != 1:
        raise BadDatabase(action, "it is damaged: it does not say which schema it has")
    version = str(versions[0])
    if version not in revisions.known:
        written = f"it was written by a newer egressd (schema {version[:20]}): upgrade this one"
        raise BadDatabase(action, written)
    wanted = newest if version == revisions.newest else revisions.schema_at(version)
    if found != wanted:
        raise BadDatabase(action, _not_ours(found, wanted))
    return version


def _not_ours(found: Schema, wanted: Schema) -> str:
    return f"its schema is not that of a backup: {first_difference(found, wanted)}"


def _check_counts(connection: sqlite3.Connection) -> None:
    """Raise BadDatabase if a table has too many rows."""
    there = {name for kind, name in schema_of(connection) if kind == "table"}
    for name in sorted(there & schema.metadata.tables.keys()):
        ((number,),) = connection.execute(f"SELECT count(*) FROM {name}")  # noqa: S608 - ours
        if number > ROWS_MAX:
            raise BadDatabase(
                "read the backup", f"it has {number} {name}, and {ROWS_MAX} are read at most"
            )


def _state(connection: sqlite3.Connection, revisions: Revisions, *, is_older: bool) -> DesiredState:
    as_it_is: Callable[[], sqlite3.Connection] = lambda: connection  # noqa: E731
    engine = create_engine("sqlite://", creator=as_it_is, poolclass=StaticPool)
    with engine.connect() as reading:
        if is_older:
            revisions.upgrade(reading)
        state = read_state(reading)
        _check_types(reading)
        return state


def _check_types(connection: Connection) -> None:
    """Raise BadDatabase if a value has another type than its column, also in tables that do not
    belong to the state: SQLite stores any value in any column (sqlite.org/datatype3.html).
    """
    for table in schema.metadata.sorted_tables:
        # A JSON number is stored as one, and all JSON has been decoded.
        columns = [column for column in table.columns if not isinstance(column.type, JSON)]
        # Plain text, since SQLAlchemy would take longer to compile it than SQLite to read the rows.
        others = ", ".join(map(_has_other_type, columns))
        found = connection.exec_driver_sql(f"SELECT {others} FROM {table}").one()  # noqa: S608 - ours
        for column, has_others in zip(columns, found, strict=True):
            if has_others:
                value = f"{table.name}.{column.name} holds a value of another type"
                raise BadDatabase("read the backup", f"it is damaged: {value}")


def _has_other_type(column: Column[Any]) -> str:
    """Return an expression that is true if any row has a value of another type in this column."""
    of_type = "integer" if isinstance(column.type, Integer | Boolean) else "text"
    return f"""max(typeof("{column.name}") NOT IN ('{of_type}', 'null'))"""

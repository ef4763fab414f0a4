"""The program's own files that the store needs, read in one step.

`prepare` reads the newest schema, and has SQLAlchemy load its dialect, which it does with the first
engine: so no first write fails because a file is missing. Statements load nothing more (a test).
"""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path
from typing import Final, Protocol

from sqlalchemy import Connection

from egressd.store.connection import engine_in_memory
from egressd.store.schema_text import Schema, schema_of

NEWEST: Final = Path(__file__).with_name("newest.sql")
"""The schema that all migrations lead to, and its revision: ``python -m tests.golden`` writes
it."""
_END: Final = ";\n"
"""The end of a statement in `NEWEST`."""


class Revisions(Protocol):
    """The revisions of the schema."""

    known: frozenset[str]
    newest: str

    def make(self, connection: Connection) -> None:
        """Make the newest schema in an empty database, inside the caller's transaction."""

    def upgrade(self, connection: Connection) -> None:
        """Bring an older database to the newest schema, inside the caller's transaction."""

    def upgrade_file(self, path: Path) -> None:
        """Bring the older database `path` to the newest schema, whole or not at all."""

    def schema_at(self, revision: str) -> Schema:
        """Return the schema of a database of a known revision."""


class NewestSchema:
    """The revisions of the schema, in a process that makes databases and upgrades none.

    Alembic, which takes 12 MB, is loaded by the process that upgrades.
    """

    def __init__(self) -> None:
        self._statements = statements(NEWEST.read_text())
        with_schema = sqlite3.connect(":memory:")
        for statement in self._statements:
            with_schema.execute(statement)
        ((version,),) = with_schema.execute("SELECT version_num FROM alembic_version")
        self._schema = schema_of(with_schema)
        with_schema.close()
        self.newest = str(version)
        # Revisions are consecutive numbers (a test).
        self.known = frozenset(f"{n:04}" for n in range(1, int(self.newest) + 1))

    def make(self, connection: Connection) -> None:
        """Make the newest schema in an empty database, inside the caller's transaction."""
        for statement in self._statements:
            connection.exec_driver_sql(statement)

    def upgrade(self, connection: Connection) -> None:
        """Bring an older database to the newest schema, inside the caller's transaction."""
        from egressd.store.migrating import Migrations

        Migrations().upgrade(connection)

    def upgrade_file(self, path: Path) -> None:
        """Bring the older database `path` to the newest schema in a process of its own. Raises
        Failed.
        """
        from egressd.store.migration_process import upgrade_apart

        upgrade_apart(path)

    def schema_at(self, revision: str) -> Schema:
        """Return the schema of a database of a known revision."""
        if revision == self.newest:
            return self._schema
        from egressd.store.migrating import Migrations

        return Migrations().schema_at(revision)


def statements(text: str) -> list[str]:
    """Return the statements of a text as `newest.sql` has them."""
    return [statement for part in text.split(_END) if (statement := part.strip())]


@cache
def prepare() -> NewestSchema:
    """Load everything that the store reads from the program's files. Touches no database on
    disk.
    """
    revisions = NewestSchema()
    engine_in_memory().dispose()
    return revisions

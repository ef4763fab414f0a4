"""The migrations of older databases, by Alembic.

Loaded where a database is older, or a backup may be: see `preparation`.
"""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path
from typing import Final

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from egressd.store.connection import engine_in_memory, engine_on
from egressd.store.schema_text import Schema, schema_of

_SCRIPTS: Final = Path(__file__).parent / "migrations"


class Migrations:
    """Every revision of the schema, in memory."""

    def __init__(self, scripts: Path = _SCRIPTS) -> None:
        self._script = ScriptDirectory(scripts)
        self.known = frozenset(r.revision for r in self._script.walk_revisions())
        self.newest = self._script.get_current_head() or ""

    def make(self, connection: Connection) -> None:
        """Make the newest schema in an empty database, inside the caller's transaction."""
        self.upgrade(connection)

    def upgrade(self, connection: Connection, to: str = "head") -> None:
        """Bring the database to the newest schema, or to the revision `to`, inside the caller's
        transaction.
        """
        context = MigrationContext.configure(
            connection,
            opts={"fn": lambda current, _: self._script._upgrade_revs(to, current)},
        )
        with Operations.context(context):
            context.run_migrations()

    def upgrade_file(self, path: Path) -> None:
        """Bring the older database `path` to the newest schema, in this process."""
        engine = engine_on(path)
        with engine.connect() as connection, connection.begin():
            self.upgrade(connection)

    def schema_at(self, revision: str) -> Schema:
        """Return the schema of a database that these migrations have brought to `revision`."""
        engine = engine_in_memory()
        try:
            with engine.connect() as connection, connection.begin():
                self.upgrade(connection, revision)
                driver = connection.connection.driver_connection
                assert isinstance(driver, sqlite3.Connection)
                return schema_of(driver)
        finally:
            engine.dispose()


@cache
def prepare_migrations() -> Migrations:
    """Load everything that migrations and the reading of their result take from the program's
    files. Touches no database on disk.
    """
    migrations = Migrations()
    engine = engine_in_memory()
    with engine.connect() as connection, connection.begin():
        migrations.upgrade(connection)
    engine.dispose()
    return migrations

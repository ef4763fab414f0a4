"""The program's own files that the store needs, read in one step.

`prepare` loads Alembic's revisions, and runs them and every statement once on a database in memory,
because SQLAlchemy, its dialect and Alembic load some of their modules on first use. So no first
write waits for that, and none fails because a file is missing.
"""

from __future__ import annotations

import sqlite3
from functools import cache
from pathlib import Path

from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from egressd.model.desired import Edit
from egressd.model.nouns import Line, Whitelist
from egressd.store import console
from egressd.store.connection import engine_in_memory
from egressd.store.rows import found_database, read_state, write_edits
from egressd.store.schema_text import Schema, schema_of

_SCRIPTS = Path(__file__).parent / "migrations"


class Migrations:
    """Every revision of the schema, in memory."""

    def __init__(self, scripts: Path = _SCRIPTS) -> None:
        self._script = ScriptDirectory(scripts)
        self.known = frozenset(r.revision for r in self._script.walk_revisions())
        self.newest = self._script.get_current_head()

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
def prepare() -> Migrations:
    """Load everything that the store reads from the program's files. Touches no database on
    disk.
    """
    migrations = Migrations()
    engine = engine_in_memory()
    with engine.connect() as connection, connection.begin():
        migrations.upgrade(connection)
        found_database(connection)
        line = Line(
            id=1,
            type="pptp",
            name="pptp_1",
            server="192.0.2.1",
            port=1723,
            username="",
            password="",
        )
        edits = [
            Edit("lines", 1, line),
            Edit("whitelist", 0, Whitelist()),
            Edit("numbers", "Group_a", 1),
        ]
        write_edits(connection, edits, read_state(connection).revision + 1)
        read_state(connection)
        console.rehearse(connection)
    engine.dispose()
    return migrations

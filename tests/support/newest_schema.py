"""The schema that all migrations lead to, as the store keeps it."""

from __future__ import annotations

import sqlite3

from egressd.store.connection import engine_in_memory
from egressd.store.migrating import Migrations


def text() -> str:
    """Return the statements that make what all migrations make of an empty database."""
    migrations, engine = Migrations(), engine_in_memory()
    with engine.connect() as connection, connection.begin():
        migrations.upgrade(connection)
        driver = connection.connection.driver_connection
        assert isinstance(driver, sqlite3.Connection)
        query = "SELECT sql FROM sqlite_master WHERE sql IS NOT NULL"
        made = [str(sql) for (sql,) in driver.execute(query)]
    engine.dispose()
    version = f"INSERT INTO alembic_version (version_num) VALUES ('{migrations.newest}')"
    lines = [f"{sql};".split("\n") for sql in (*made, version)]
    return "\n".join("\n".join(line.rstrip() for line in each) for each in lines) + "\n"

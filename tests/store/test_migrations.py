"""The migrations lead to the schema, keep stored data, and need no file once prepared."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection

from egressd.model.desired import Edit
from egressd.model.errors import Failed
from egressd.model.nouns import Rule
from egressd.store import database as database_module
from egressd.store import migrations, schema
from egressd.store.connection import APPLICATION_ID, engine_in_memory, engine_on
from egressd.store.files import prepare_directory
from egressd.store.migrating import Migrations
from egressd.store.own_process import command
from egressd.store.preparation import prepare

if TYPE_CHECKING:
    from tests.store.rig import OpenDatabase

pytestmark = pytest.mark.slow


SCRIPTS = Path(migrations.__file__).parent

NEXT = """
import sqlalchemy as sa
from alembic import op
revision = "9998"
down_revision = "{down}"
def upgrade():
    with op.batch_alter_table("rules", recreate="always") as batch:
        batch.add_column(sa.Column("shade", sa.Text, nullable=False, server_default="blue"))
"""
"""A future revision, which recreates the table of rules."""


def test_the_migrations_create_the_current_schema() -> None:
    engine = engine_in_memory()
    with engine.connect() as connection, connection.begin():
        Migrations().upgrade(connection)
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, schema.metadata) == []
        migrated = _tables(connection)
        migrated.pop("alembic_version")
    engine.dispose()
    # Alembic does not compare constraints' names and checks.
    engine = engine_in_memory()
    with engine.connect() as connection, connection.begin():
        schema.metadata.create_all(connection)
        assert _tables(connection) == migrated
    engine.dispose()


def _tables(connection: Connection) -> dict[str, list[str]]:
    query = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
    return {name: _parts(text) for name, text in connection.exec_driver_sql(query)}


def _parts(statement: str) -> list[str]:
    # SQLite quotes the name of a table that a migration made anew.
    statement = re.sub(r'^CREATE TABLE "(\w+)"', r"CREATE TABLE \1", statement.strip())
    # A column that was added later has no line of its own.
    later = "bound_mac|change_ip_url|change_ip_via|subscription|name_there|gone_at"
    return sorted(re.split(rf",?\s*\n\s*|, (?=(?:{later}) )", statement))


def test_every_constraint_has_a_name() -> None:
    for table in schema.metadata.tables.values():
        assert all(constraint.name for constraint in table.constraints)


def test_revisions_are_consecutive_numbers() -> None:
    known = prepare().known
    assert sorted(known) == [f"{n:04}" for n in range(1, len(known) + 1)]
    files = {p.name[1:5] for p in (SCRIPTS / "versions").glob("v*.py")}
    assert files == known


@pytest.fixture
def newer(tmp_path: Path) -> Migrations:
    """The migrations and one more."""
    scripts = tmp_path / "scripts"
    shutil.copytree(SCRIPTS, scripts)
    text = NEXT.format(down=prepare().newest)
    (scripts / "versions" / "v9998_next.py").write_text(text)
    return Migrations(scripts)


async def test_an_older_database_is_migrated(
    tmp_path: Path, opened: OpenDatabase, newer: Migrations, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = [Edit("rules", 3, Rule(id=3, ip="10.0.0.3/32", target_node="DIRECT"))]
    async with opened(tmp_path / "data") as database:
        await database.begin(edits, 1)
        await database.commit()
        before = await database.load()
        await database.backup(tmp_path / "backup")
    monkeypatch.setattr(database_module, "prepare", lambda: newer)
    async with opened(tmp_path / "data") as database:
        assert await database.load() == before
        assert await database.read_backup(tmp_path / "backup") == before
    engine = engine_on(tmp_path / "data" / "state.db")
    with engine.connect() as connection:
        shades = connection.exec_driver_sql("SELECT shade FROM rules").scalars().all()
        assert shades == ["blue"]
    engine.dispose()


async def test_a_failed_migration_changes_nothing(
    tmp_path: Path, opened: OpenDatabase, newer: Migrations, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "data") as database:
        before = await database.load()
    scripts = tmp_path / "scripts" / "versions"
    (scripts / "v9999_last.py").write_text(
        'revision = "9999"\ndown_revision = "9998"\ndef upgrade():\n    raise ValueError("no")\n'
    )
    with monkeypatch.context() as patch:
        patch.setattr(database_module, "prepare", lambda: Migrations(tmp_path / "scripts"))
        with pytest.raises(Exception, match="no"):
            async with opened(tmp_path / "data"):
                pass
    async with opened(tmp_path / "data") as database:
        assert await database.load() == before


def older_database(path: Path, revision: str) -> None:
    """Make a database as an older egressd has left it."""
    path.touch(mode=0o600)
    engine = engine_on(path)
    with engine.connect() as connection, connection.begin():
        connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION_ID}")
        Migrations().upgrade(connection, revision)
        connection.exec_driver_sql("INSERT INTO meta VALUES (0, 0, 'made by a test')")
    engine.dispose()


async def test_an_older_database_is_migrated_by_a_process_that_ends(
    tmp_path: Path, opened: OpenDatabase
) -> None:
    for revision in sorted(prepare().known)[:-1]:
        folder = tmp_path / revision
        prepare_directory(folder)
        older_database(folder / "state.db", revision)
        async with opened(folder) as database:
            assert (await database.load()).revision == 0
            await database.begin(
                [Edit("rules", 1, Rule(id=1, ip="10.0.0.1/32", target_node="DIRECT"))], 1
            )
            await database.commit()


async def test_a_database_that_cannot_be_migrated_stays_as_it_is(
    tmp_path: Path, opened: OpenDatabase
) -> None:
    prepare_directory(tmp_path / "data")
    path = tmp_path / "data" / "state.db"
    older_database(path, "0001")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE password (id INTEGER)")  # the second migration makes it
        before = connection.execute("SELECT * FROM sqlite_master").fetchall()
    with pytest.raises(Failed, match=r"upgrade the database .*password already exists"):
        async with opened(tmp_path / "data"):
            pass
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT * FROM sqlite_master").fetchall() == before


def test_a_migration_ends_with_the_process_that_wanted_it(tmp_path: Path) -> None:
    older_database(tmp_path / "state.db", "0001")
    given = f"{os.getpid() + 1}\n{tmp_path / 'state.db'}"
    argv = command("egressd.store.migration_process")
    done = subprocess.run(argv, input=given, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "the process that wanted it is gone\n")


def test_alembic_is_loaded_only_where_a_database_is_migrated(tmp_path: Path) -> None:
    text = """
import asyncio, sys
from pathlib import Path
from egressd.store.database import Database

async def main():
    database = Database(Path(sys.argv[1]))
    await database.open()
    await database.backup(Path(sys.argv[1]) / "backup")
    await database.read_backup(Path(sys.argv[1]) / "backup")
    await database.close()

asyncio.run(main())
print([*{"alembic", "mako", "sqlalchemy.dialects.postgresql"}.intersection(sys.modules)])
"""
    for name in ("new", "0001"):
        (tmp_path / name).mkdir()
    older_database(tmp_path / "0001" / "state.db", "0001")
    for folder in ("new", "new", "0001"):
        argv = [sys.executable, "-c", text, str(tmp_path / folder)]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)
        assert done.stdout == "[]\n"


CLOSED = """
import asyncio, os, sys
from pathlib import Path
from egressd.store.api_token import ApiToken
from egressd.store.console import ConsoleStore
from egressd.store.database import Database
from egressd.store.preparation import prepare
from egressd.store.setup_code import SetupCode
from egressd.store.trial_calls import TrialCalls
from egressd.model.console import ChangeRecord, Session
from egressd.model.wording import Sentence
from egressd.model.desired import Edit
from egressd.model.nouns import Rule, Settings

data = Path(sys.argv[1])
if sys.argv[2] == "prepared":
    prepare()
closed = tuple(os.path.realpath(p) for p in (*sys.path, sys.prefix, sys.base_prefix) if p)
assert not str(data).startswith(closed)

def refuse(event, args):
    if event == "open" and isinstance(args[0], (str, bytes, os.PathLike)):
        path = os.path.realpath(os.fsdecode(args[0]))
        if path.startswith(closed):
            os.write(2, f"opened {path}\\n".encode())
            os._exit(3)

sys.addaudithook(refuse)

async def main():
    database = Database(data)
    await database.open()
    await database.begin([Edit("rules", 1, Rule(id=1, ip="10.0.0.1/32", target_node="DIRECT")),
                          Edit("settings", 0, Settings())], 1)
    await database.commit()
    await database.begin([Edit("rules", 1, None)], 2)
    await database.rollback()
    assert len((await database.load()).rules) == 1
    await database.backup(data / "backup")
    await database.restore(await database.read_backup(data / "backup"))
    console = ConsoleStore(data)
    session = Session(key="k", id="i", source="", agent="", created_at=1, seen_at=1)
    await console.set_password("hash", session)
    await console.touch_sessions({"k": 2})
    assert await console.sessions() and await console.password()
    await console.drop_sessions(["k"])
    change = ChangeRecord(at="", who="", source="", what="", text=Sentence("", ""))
    await console.add_changes([change])
    assert await console.changes(5)
    await console.close()
    await database.close()
    SetupCode(data).renew()
    with SetupCode(data).used_up():
        pass
    calls = TrialCalls(data)
    calls.open()
    await calls.spend("a", 5)
    ApiToken(data).ensure()
    ApiToken(data).token()

asyncio.run(main())
os.write(1, b"done")
"""


def use_with_files_closed(data: Path, how: str) -> tuple[int, str, str]:
    run = subprocess.run(
        [sys.executable, "-c", CLOSED, str(data), how],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return run.returncode, run.stdout, run.stderr


def test_no_program_file_is_read_after_preparing(tmp_path: Path) -> None:
    """The process has dropped its privileges by then: see `egressd.store.preparation`."""
    status, _, error = use_with_files_closed(tmp_path / "a", "unprepared")
    assert (status, error[:6]) == (3, "opened")
    assert use_with_files_closed(tmp_path / "b", "prepared") == (0, "done", "")


def test_no_statement_loads_a_module_after_preparing() -> None:
    text = """
import sys
from egressd.store.connection import engine_in_memory
from egressd.store.preparation import NewestSchema, prepare
from tests.store.statements import run_all

newest = {"prepared": prepare, "unprepared": NewestSchema}[sys.argv[1]]()
loaded = {*sys.modules}
with engine_in_memory().connect() as connection, connection.begin():
    newest.make(connection)
    run_all(connection)
print(*{*sys.modules} - loaded)
"""

    def loaded(how: str) -> list[str]:
        argv = [sys.executable, "-c", text, how]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()

    assert "sqlalchemy.dialects.sqlite.base" in loaded("unprepared")
    assert loaded("prepared") == []


def test_preparing_opens_no_database(tmp_path: Path) -> None:
    text = "from egressd.store.preparation import prepare; prepare()"
    run = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, capture_output=True, timeout=60, check=True
    )
    assert run.stderr == b""
    assert list(tmp_path.iterdir()) == []

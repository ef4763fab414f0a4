"""A backup of foreign origin is read within bounds, or refused: promise P5."""

from __future__ import annotations

import os
import resource
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.nouns import Node, Rule
from egressd.store import backup_file, backup_reader, own_process
from egressd.store.connection import BadDatabase
from egressd.store.database import Database
from egressd.store.preparation import prepare
from egressd.store.schema_text import normal

if TYPE_CHECKING:
    from tests.store.rig import OpenDatabase

pytestmark = pytest.mark.slow


EDITS = [
    Edit("rules", 1, Rule(id=1, ip="10.0.0.1/32", target_node="DIRECT")),
    Edit(
        "nodes", 1, Node(id=1, name="a", protocol="ss", config_json="{}", group="", created_at="")
    ),
]
ENDLESS = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n)"
LARGE_S = 20.0
"""Seconds within which any of these files is refused: the bound is 30 s of a processor's time."""


@pytest.fixture
async def backup(tmp_path: Path, opened: OpenDatabase) -> Path:
    """A good backup of a small device."""
    async with opened(tmp_path / "data") as database:
        await database.begin(EDITS, 1)
        await database.commit()
        await database.backup(tmp_path / "backup")
    return tmp_path / "backup"


def execute(*statements: str) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute("PRAGMA writable_schema = ON")
            for statement in statements:
                connection.execute(statement)

    return change


def in_place_of_rules(view: str) -> Callable[[Path], None]:
    return execute("DROP TABLE rules", f"CREATE VIEW rules AS {view}")


def rewritten(old: str, new: str) -> Callable[[Path], None]:
    return execute(f"UPDATE sqlite_master SET sql = replace(sql, '{old}', '{new}')")


async def refusal(file: Path) -> str:
    """Return why the file is refused: quickly, and by an error that blames the file itself."""
    began = time.monotonic()
    with pytest.raises(BadDatabase) as refused:
        await Database(file.parent).read_backup(file)
    assert time.monotonic() - began < LARGE_S
    return refused.value.cause


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (in_place_of_rules(f"{ENDLESS} SELECT * FROM n"), "view 'rules'"),
        (in_place_of_rules("SELECT randomblob(1000000000) AS ip"), "view 'rules'"),
        (
            execute(
                "DROP TABLE alembic_version",
                f"CREATE VIEW alembic_version AS {ENDLESS} SELECT '0002' AS version_num FROM n",
            ),
            "does not say which schema",
        ),
        (execute("CREATE TABLE more (a)"), "table 'more'"),
        (execute("CREATE INDEX more ON rules (abs(id))"), "index 'more'"),
        (execute("CREATE INDEX more ON rules (id) WHERE id IN (1, 2)"), "index 'more'"),
        (
            execute("CREATE TRIGGER more AFTER INSERT ON rules BEGIN DELETE FROM rules; END"),
            "trigger 'more'",
        ),
        (execute("CREATE VIRTUAL TABLE more USING fts5(a)"), "table 'more'"),
        (execute("ALTER TABLE rules ADD COLUMN more AS (abs(id))"), "table 'rules'"),
        (execute("ALTER TABLE rules ADD COLUMN more TEXT DEFAULT 'x'"), "table 'rules'"),
        (execute("ALTER TABLE rules RENAME TO more"), "table 'more'"),
        (execute("ANALYZE"), "table 'sqlite_stat1'"),
        (execute("DROP TABLE counters"), "table 'counters' is missing"),
        (rewritten("comment TEXT", "comment BLOB"), "table 'rules'"),
        (rewritten("ip TEXT NOT NULL", "ip TEXT NOT NULL COLLATE NOCASE"), "table 'rules'"),
        (rewritten("is_enabled IN (0, 1)", "abs(is_enabled) < 2"), "table 'rules'"),
        (rewritten("VARCHAR(32)", "VARCHAR(33)"), "table 'alembic_version'"),
        (rewritten("comment TEXT", "comment TEXT\u00a0"), "table 'rules'"),
        (rewritten("comment TEXT", "comment\u2003TEXT"), "table 'rules'"),
        (
            execute(
                "INSERT INTO sqlite_master (rowid, type, name, tbl_name, rootpage, sql) VALUES"
                " (-1, 'table', 'rules', 'rules', 0, 'CREATE VIEW more AS SELECT 1 AS ip')"
            ),
            "malformed database schema",  # by SQLite, which compares names
        ),
        (
            execute("UPDATE sqlite_master SET sql = CAST(sql AS BLOB) WHERE name = 'rules'"),
            "table 'rules'",
        ),
        (
            execute("UPDATE alembic_version SET version_num = '0005'"),
            "table 'nodes' is none of egressd's",
        ),
    ],
)
async def test_a_foreign_schema_is_refused_before_a_row_is_read(
    backup: Path, change: Callable[[Path], None], named: str
) -> None:
    change(backup)
    assert named in await refusal(backup)


async def test_white_space_in_a_schema_is_ignored(backup: Path) -> None:
    rewritten(", ", ",   ")(backup)
    assert set((await Database(backup.parent).read_backup(backup)).rules) == {1}


def test_white_space_in_quotes_counts() -> None:
    assert normal("a  ,b") == normal("a, b") != normal("a b")
    assert normal("DEFAULT ' '") != normal("DEFAULT '  '")
    assert normal('"a b"') != normal('"a  b"')
    assert normal("'a''b'") != normal("'a' 'b'")
    assert normal("a\t\r\n\fb") == normal("a b")
    for space in "\v\x1c\x85\u00a0\u2003":  # to SQLite these are letters of a name, or errors
        assert normal(f"a{space}") != normal("a")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (execute("UPDATE rules SET comment = hex(zeroblob(20000000))"), "too big"),
        (execute("UPDATE rules SET comment = x'ff'"), "Expected `str`"),
        (execute("UPDATE rules SET comment = CAST(x'ff' AS TEXT)"), "decode"),
        (
            execute(
                "INSERT INTO settings VALUES ('unmanaged', replace(hex(zeroblob(9999)), '00', '[')"
                " || replace(hex(zeroblob(9999)), '00', ']'))"
            ),
            "nested too deep",
        ),
        (
            execute(
                f"INSERT INTO counters {ENDLESS} SELECT 'a' || i, 1 FROM n LIMIT 100001",
            ),
            "100000 are read at most",
        ),
        (execute("UPDATE meta SET revision = 'x'"), "Expected `int`"),
        (execute("UPDATE meta SET generation = x'ff00'"), "meta.generation holds"),
        (
            execute("INSERT INTO password (id, hash) VALUES (0, x'ff')"),
            "password.hash holds",
        ),
        (execute("INSERT INTO sessions VALUES ('a', 'b', 'c', 'd', 'e', 6)"), "sessions."),
    ],
)
async def test_values_that_egressd_never_writes_are_refused(
    backup: Path, change: Callable[[Path], None], reason: str
) -> None:
    change(backup)
    assert reason in await refusal(backup)


async def test_a_copy_of_a_database_with_a_log_is_read(backup: Path, opened: OpenDatabase) -> None:
    data = backup.parent / "data"
    async with opened(data) as database:
        state = await database.load()
    content = (data / "state.db").read_bytes()
    assert content[18:20] == b"\x02\x02"
    (data / "copy").write_bytes(content)
    assert await Database(data).read_backup(data / "copy") == state


@pytest.mark.parametrize("there", ["a directory", "a pipe", "a file that is too large"])
async def test_a_directory_a_device_or_a_too_large_file_is_refused(
    backup: Path, there: str
) -> None:
    place = backup
    if there == "a directory":
        place = backup.parent
    elif there == "a pipe":
        place = Path("/dev/null")
    else:
        with backup.open("ab") as file:
            file.truncate(64 * 1024 * 1024 + 1)
    with pytest.raises(BadDatabase, match=r"directory|no file|truncated|more than 67108864 bytes"):
        await Database(backup.parent).read_backup(place)


# --- The process that reads. ----------------------------------------------------------------


def act(monkeypatch: pytest.MonkeyPatch, code: str, **limits: int) -> None:
    """Make the process run `code` instead of reading."""
    begin = "from egressd.store import backup_reader as it"
    changed = [f"it._LIMITS[{getattr(resource, name)}] = {most}" for name, most in limits.items()]
    acting = ["answer = it._answer", "def act(_):", f"    {code}", "it._answer = act", "it.main()"]
    argv = own_process.running("\n".join((begin, *changed, *acting)))
    monkeypatch.setattr(backup_reader, "command", lambda _: argv)


@pytest.mark.parametrize(
    ("code", "limits", "reason"),
    [
        ("while True: pass", {"RLIMIT_CPU": 1}, "processor time"),
        ("import os; os.abort()", {}, "signal 6"),
        ("return it.ReaderAnswer(problem='x' * 200_000_000)", {}, "holds more than"),
    ],
)
async def test_a_reader_process_without_an_answer_is_reported(
    backup: Path,
    monkeypatch: pytest.MonkeyPatch,
    code: str,
    limits: dict[str, int],
    reason: str,
) -> None:
    act(monkeypatch, code, **limits)
    assert reason in await refusal(backup)


async def test_a_hanging_reader_process_is_ended(
    backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    act(monkeypatch, "import time; time.sleep(600)")
    monkeypatch.setattr(backup_reader, "_PATIENCE_S", 2.0)
    assert "took over 2 s" in await refusal(backup)


async def test_memory_is_limited(backup: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    act(monkeypatch, "it.read_content = lambda *_: bytearray(10 ** 10); return answer(_)")
    assert "bytes of memory" in await refusal(backup)


async def test_the_reading_process_drops_root_privileges(
    backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    act(
        monkeypatch,
        "import os; return it.ReaderAnswer(problem=f'{os.getresuid()} {os.getgroups()}')",
    )
    mine = os.getresuid()
    wanted = "(65534, 65534, 65534) []" if mine[0] == 0 else f"{mine} {os.getgroups()}"
    assert await refusal(backup) == wanted


async def test_sqlite_is_interrupted_after_its_time_limit(
    backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_file, "_STEPS", 1)
    content = backup.read_bytes()
    with pytest.raises(BadDatabase, match="took over 0 s"):
        backup_file.read_content(content, prepare(), 0.0)


async def test_the_authorizer_allows_reading_tables_only(backup: Path) -> None:
    denied = [
        "SELECT randomblob(9)",
        f"{ENDLESS} SELECT * FROM n",
        "DELETE FROM rules",
        "ATTACH 'x' AS y",
        "PRAGMA writable_schema = ON",
        "SELECT load_extension('x')",
    ]
    with (
        backup_file._opened(backup.read_bytes()) as connection,
        backup_file._reading_alone(connection),
    ):
        assert connection.execute("SELECT count(*) FROM rules").fetchall() == [(1,)]
        for statement in denied:
            with pytest.raises(sqlite3.DatabaseError, match=r"not authorized|prohibited"):
                connection.execute(statement)


async def test_the_read_state_is_the_written_one(backup: Path) -> None:
    state = await Database(backup.parent).read_backup(backup)
    assert state == DesiredState().with_edits(EDITS, 1)

"""A database that cannot be trusted is refused, and left as it is: promise P5.

Read as "no rules" it would open the device.
"""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed
from egressd.model.nouns import Rule
from egressd.store.connection import BadDatabase
from egressd.store.database import Database

if TYPE_CHECKING:
    from tests.store.rig import OpenDatabase

pytestmark = pytest.mark.slow


EDITS = [
    Edit("rules", i, Rule(id=i, ip=f"10.0.{i >> 8}.{i & 255}/32", target_node=f"node {i}"))
    for i in range(1, 801)
]


@pytest.fixture
async def data(tmp_path: Path, opened: OpenDatabase) -> Path:
    """The directory of a closed database with 800 rules."""
    directory = tmp_path / "data"
    async with opened(directory) as database:
        await database.begin(EDITS, 1)
        await database.commit()
    return directory


async def read(database: Database) -> DesiredState:
    await database.open()
    return await database.load()


async def refusal(directory: Path) -> str:
    """Return the reason why the database is refused; its files must stay as they were."""
    before = {p.name: p.read_bytes() for p in directory.iterdir() if p.is_file()}
    database = Database(directory)
    try:
        with pytest.raises(BadDatabase) as refused:
            await read(database)
    finally:
        await database.close()
    after = {p.name: p.read_bytes() for p in directory.iterdir() if p.is_file()}
    assert {n: c for n, c in after.items() if not n.endswith(("-wal", "-shm"))} == {
        n: c for n, c in before.items() if not n.endswith(("-wal", "-shm"))
    }
    return str(refused.value)


def sql(*statements: str) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        with sqlite3.connect(file) as connection:
            for statement in statements:
                connection.execute(statement)
        connection.close()

    return damage


def cut_half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda file: file.write_bytes(b""), "truncated"),
        (lambda file: file.write_bytes(file.read_bytes()[:50]), "truncated"),
        (lambda file: file.write_bytes(file.read_bytes()[:512]), "malformed"),
        (cut_half, "malformed|damaged"),
        (lambda file: file.write_bytes(b"#!/bin/sh\n" * 100), "not a SQLite database"),
        (lambda file: file.write_bytes(bytes(8192)), "not a SQLite database"),
        (sql("PRAGMA application_id = 0"), "not a database of egressd's"),
        (sql("UPDATE alembic_version SET version_num = '9999'"), "newer egressd"),
        (sql("DELETE FROM alembic_version"), "which schema"),
        (sql("DROP TABLE alembic_version"), "which schema"),
        (sql("DROP TABLE rules"), "no such table"),
        (sql("DELETE FROM meta"), "No row|no row"),
        (
            sql("PRAGMA ignore_check_constraints = 1", "UPDATE rules SET is_enabled = 7"),
            "CHECK constraint failed",
        ),
        (sql("UPDATE rules SET upload_limit_kbps = 'fast' WHERE id = 5"), "Expected `int`"),
        (sql("UPDATE rules SET ip = x'ff' WHERE id = 5"), "Expected `str`"),
        (sql("UPDATE rules SET ip = '10.0.0.u/32' WHERE id = 5"), "10.0.0.u"),
        (sql("INSERT INTO settings VALUES ('unmanaged', '7')"), "Expected `str`"),
        (sql("INSERT INTO settings VALUES ('unmanaged', '{')"), "."),
        (sql("INSERT INTO numbers VALUES ('Group_a', 'x')"), "Expected `int`"),
        (sql("INSERT INTO counters VALUES ('rules2', 'x')"), "Expected `int`"),
        (sql("UPDATE meta SET revision = 'x'"), "Expected `int`"),
    ],
)
async def test_a_damaged_database_is_refused(
    data: Path, damage: Callable[[Path], None], reason: str
) -> None:
    damage(data / "state.db")
    text = await refusal(data)
    assert "state.db" in text
    assert any(part in text for part in reason.split("|"))


async def test_a_foreign_database_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    sql("CREATE TABLE rules (id INTEGER PRIMARY KEY)")(tmp_path / "state.db")
    assert "not a database of egressd's" in await refusal(tmp_path)


async def test_an_overwritten_page_is_detected(data: Path) -> None:
    file = data / "state.db"
    whole = file.read_bytes()
    noise = random.Random(1)
    pages = range(1, len(whole) // 4096)
    for page in noise.sample(pages, 12):
        at = page * 4096
        file.write_bytes(whole[:at] + noise.randbytes(4096) + whole[at + 4096 :])
        await refusal(data)


async def test_a_directory_or_file_in_place_of_the_database_is_refused(tmp_path: Path) -> None:
    (tmp_path / "state.db").mkdir()
    assert "Is a directory" in await refusal(tmp_path)
    file = tmp_path / "file"
    file.write_text("")
    database = Database(file)
    with pytest.raises(Failed, match="prepare the directory"):
        await database.open()
    await database.close()


@pytest.mark.parametrize("log", ["-wal", "-journal"])
async def test_a_log_without_its_database_is_refused(
    data: Path, opened: OpenDatabase, log: str
) -> None:
    (data / "state.db").rename(data / f"state.db{log}")
    assert "is still there" in await refusal(data)
    assert not (data / "state.db").exists()
    (data / f"state.db{log}").unlink()
    async with opened(data) as database:
        assert await database.load() == DesiredState()


async def crashed_copy(data: Path, target: Path, opened: OpenDatabase) -> None:
    """Copy the files as a crash leaves them: revision 2 is in the log only."""
    async with opened(data) as database:
        await database.begin([Edit("rules", 1, None)], 2)
        await database.commit()
        shutil.copytree(data, target)


async def test_a_log_left_by_a_crash_is_read(data: Path, opened: OpenDatabase) -> None:
    left = data.with_name("left")
    await crashed_copy(data, left, opened)
    async with opened(left) as database:
        assert (await database.load()).revision == 2


async def test_without_its_log_a_database_has_the_state_before(
    data: Path, opened: OpenDatabase
) -> None:
    left = data.with_name("left")
    await crashed_copy(data, left, opened)
    (left / "state.db-wal").unlink()
    async with opened(left) as database:
        assert await database.load() == DesiredState().with_edits(EDITS, 1)


async def test_a_damaged_log_gives_a_whole_state(data: Path, opened: OpenDatabase) -> None:
    """SQLite reads its log up to the first frame whose checksum is wrong."""
    before = DesiredState().with_edits(EDITS, 1)
    after = before.with_edits([Edit("rules", 1, None)], 2)
    noise = random.Random(2)
    for number in range(10):
        left = data.with_name(f"left-{number}")
        await crashed_copy(data, left, opened)
        log = left / "state.db-wal"
        content = bytearray(log.read_bytes())
        content[noise.randrange(len(content))] ^= 0xFF
        log.write_bytes(content[: noise.randrange(len(content))] if number % 2 else content)
        async with opened(left) as database:
            assert await database.load() in (before, after)
        sql("DELETE FROM rules", "UPDATE meta SET revision = 1")(data / "state.db")
        async with opened(data) as database:
            await database.begin(EDITS, 2)
            await database.commit()
        sql("UPDATE meta SET revision = 1")(data / "state.db")


async def test_a_damaged_database_is_not_backed_up(data: Path, tmp_path: Path) -> None:
    """Past fault: a backup of a damaged database replaced the last good backup with a file that
    could not be restored.
    """
    kept = tmp_path / "kept"
    database = Database(data)
    await database.backup(kept)
    was = kept.read_bytes()
    content = bytearray((data / "state.db").read_bytes())
    content[8 * 4096 : 11 * 4096] = bytes(3 * 4096)
    (data / "state.db").write_bytes(content)
    with pytest.raises(BadDatabase, match=f"back the database up to {kept}: .*damaged"):
        await database.backup(kept)
    await database.close()
    assert kept.read_bytes() == was
    assert [*tmp_path.glob("kept*")] == [kept]


async def test_setting_aside_makes_room_for_a_new_database(
    data: Path, opened: OpenDatabase
) -> None:
    bad = data / "state.db"
    bad.write_bytes(b"damaged")
    database = Database(data)
    aside = database.set_aside()
    await database.close()
    assert aside.read_bytes() == b"damaged"
    async with opened(data) as fresh:
        assert await fresh.load() == DesiredState()
    again = Database(data)
    assert again.set_aside() != aside
    await again.close()

"""Written data is read back, once, whole, in order; backups; file permissions."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from egressd.model.desired import ROW_TABLES, DesiredState, Edit
from egressd.model.errors import Failed
from egressd.model.nouns import Rule
from egressd.store import schema
from egressd.store.database import Database
from tests.store.rig import EVERYTHING, rules, write

if TYPE_CHECKING:
    from tests.store.rig import OpenDatabase

pytestmark = pytest.mark.slow


async def test_a_new_database_holds_the_empty_state(tmp_path: Path, opened: OpenDatabase) -> None:
    async with opened(tmp_path / "data") as database:
        assert await database.load() == DesiredState()


async def test_calls_on_a_closed_database_fail(tmp_path: Path) -> None:
    database = Database(tmp_path)
    for call in (database.load(), database.begin([], 1)):
        with pytest.raises(Failed, match="not open"):
            await call


async def test_files_are_readable_by_their_owner_only(tmp_path: Path, opened: OpenDatabase) -> None:
    before = os.umask(0)
    try:
        async with opened(tmp_path / "data") as database:
            await write(database, rules(1), 1)
            await database.backup(tmp_path / "backup")
            modes = {f.name: stat.S_IMODE(f.stat().st_mode) for f in (tmp_path / "data").iterdir()}
    finally:
        os.umask(before)
    assert modes == {"state.db": 0o600, "state.db-wal": 0o600, "state.db-shm": 0o600}
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "backup").stat().st_mode) == 0o600


async def test_backups_are_consistent_during_writes(tmp_path: Path, opened: OpenDatabase) -> None:
    async with opened(tmp_path / "data") as database:
        await write(database, rules(2000), 1)

        async def keep_writing() -> None:
            for revision in range(2, 60):
                both = [
                    Edit(
                        "rules", key, Rule(id=key, ip=f"10.9.9.{key}/32", target_node=str(revision))
                    )
                    for key in (1, 2)
                ]
                await write(database, both, revision)

        writing = asyncio.create_task(keep_writing())
        seen = set()
        for number in range(8):
            path = tmp_path / f"backup-{number}"
            await database.backup(path)
            state = await database.read_backup(path)
            assert len(state.rules) == 2000
            assert state.rules[1].target_node == state.rules[2].target_node
            if state.revision > 1:
                assert state.rules[1].target_node == str(state.revision)
            seen.add(state.revision)
        await writing
        assert len(seen) > 1


async def test_a_backup_excludes_an_open_transaction(tmp_path: Path, opened: OpenDatabase) -> None:
    async with opened(tmp_path / "data") as database:
        await write(database, rules(3), 1)
        await database.begin(rules(1, start=4), 2)
        await database.backup(tmp_path / "backup")
        assert len((await database.read_backup(tmp_path / "backup")).rules) == 3
        assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["backup"]


async def test_restore_replaces_the_state_as_a_new_revision(
    tmp_path: Path, opened: OpenDatabase
) -> None:
    async with opened(tmp_path / "data") as database:
        await write(database, EVERYTHING, 1)
        saved = await database.load()
        await database.backup(tmp_path / "backup")
        later = [Edit("nodes", 7, None), Edit("nodes", 8, None), *rules(20, start=1000)]
        await write(database, later, 2)
        await database.restore(await database.read_backup(tmp_path / "backup"))
        restored = await database.load()
    assert restored.revision == 3
    for table in (*ROW_TABLES, "whitelist", "settings", "numbers"):
        assert getattr(restored, table) == getattr(saved, table)
    assert restored.next_id("rules") == 1020


async def test_an_older_database_is_backed_up_before_its_upgrade(
    tmp_path: Path, opened: OpenDatabase
) -> None:
    async with opened(tmp_path / "data") as database:
        await write(database, rules(3), 1)
        with closing(sqlite3.connect(database.path)) as older, older:
            for table in (
                *schema.PRIVATE,
                schema.alert_channels,
                schema.target_groups,
                schema.subscriptions,
            ):
                older.execute(f"DROP TABLE {table.name}")
            older.execute("ALTER TABLE rules DROP COLUMN bound_mac")
            added = ("change_ip_url", "change_ip_via", "subscription", "name_there", "gone_at")
            for column in added:
                older.execute(f"ALTER TABLE nodes DROP COLUMN {column}")
            older.execute("UPDATE alembic_version SET version_num = '0001'")
        await database.backup(tmp_path / "backup")
        assert (tmp_path / "backup").stat().st_mode & 0o777 == 0o600
        assert set((await database.read_backup(tmp_path / "backup")).rules) == {1, 2, 3}


async def test_an_invalid_backup_changes_nothing(tmp_path: Path, opened: OpenDatabase) -> None:
    bad = tmp_path / "bad"
    bad.write_bytes(b"SQLite format 3\0" + bytes(4080))
    async with opened(tmp_path / "data") as database:
        await write(database, EVERYTHING, 1)
        before = await database.load()
        for path in (bad, tmp_path / "absent", tmp_path):
            with pytest.raises(Failed, match=r"the (backup|database)"):
                await database.restore(await database.read_backup(path))
        assert await database.load() == before


async def test_a_backup_replaces_regular_files_only(tmp_path: Path, opened: OpenDatabase) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to("/dev/null")
    async with opened(tmp_path / "data") as database:
        for path in (pipe, link):
            with pytest.raises(Failed, match="what is there is no file"):
                await database.backup(path)
    assert pipe.is_fifo()
    assert link.is_symlink()


async def test_a_backup_to_an_unwritable_place_fails(tmp_path: Path, opened: OpenDatabase) -> None:
    async with opened(tmp_path / "data") as database:
        with pytest.raises(Failed, match="back the database up"):
            await database.backup(tmp_path / "absent" / "backup")

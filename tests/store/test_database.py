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

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed
from egressd.model.nouns import Line, Node, ProxyService, Rule, Settings, Whitelist
from egressd.store import schema
from egressd.store.database import Database

if TYPE_CHECKING:
    from tests.store.rig import OpenDatabase

pytestmark = pytest.mark.slow


NODE = Node(
    id=7, name="tokyo ☂", protocol="ss", config_json='{"a": "☂"}', group="asia", created_at="t"
)
RULE = Rule(id=1, ip="10.0.0.5/32", target_node="tokyo ☂", upload_limit_kbps=5, created_at="t")
LINE = Line(
    id=3,
    type="l2tp",
    name="l2tp_1",
    server="vpn.example.net",
    port=1701,
    username="u",
    password="p",
    secret="s",
    dns_profile="custom",
    dns_servers=("9.9.9.9", "1.1.1.1"),
    is_enabled=False,
)
SERVICE = ProxyService(id=2, name="s", outbound_interface="eth1", port=8080)
EVERYTHING = [
    Edit("numbers", "Group_asia", 1),
    Edit("numbers", "Interface:eth1", 1),
    Edit("nodes", 7, NODE),
    Edit("rules", 1, RULE),
    Edit("lines", 3, LINE),
    Edit("services", 2, SERVICE),
    Edit("whitelist", 0, Whitelist(domains="example.com", ips="192.0.2.1", node="Group_asia")),
    Edit("settings", 0, Settings(unmanaged="DIRECT", check_interval_s=60, stopped=True)),
]


async def write(database: Database, edits: list[Edit], revision: int) -> None:
    await database.begin(edits, revision)
    await database.commit()


def rules(count: int, start: int = 1) -> list[Edit]:
    return [
        Edit(
            "rules", i, Rule(id=i, ip=f"10.{i >> 16}.{i >> 8 & 255}.{i & 255}/32", target_node="x")
        )
        for i in range(start, start + count)
    ]


async def test_a_new_database_holds_the_empty_state(tmp_path: Path, opened: OpenDatabase) -> None:
    async with opened(tmp_path / "data") as database:
        assert await database.load() == DesiredState()


async def test_every_kind_of_row_is_read_back_unchanged(
    tmp_path: Path, opened: OpenDatabase
) -> None:
    async with opened(tmp_path) as database:
        await write(database, EVERYTHING, 1)
    async with opened(tmp_path) as database:
        assert await database.load() == DesiredState().with_edits(EVERYTHING, 1)


async def test_edits_replace_and_remove_rows(tmp_path: Path, opened: OpenDatabase) -> None:
    disabled = Rule(id=1, ip="10.0.0.6/32", target_node="DIRECT", is_enabled=False)
    second = [
        Edit("rules", 1, disabled),
        Edit("nodes", 7, None),
        Edit("settings", 0, Settings(check_interval_s=5)),
    ]
    async with opened(tmp_path) as database:
        await write(database, EVERYTHING, 1)
        await write(database, second, 2)
        expected = DesiredState().with_edits(EVERYTHING, 1).with_edits(second, 2)
        assert await database.load() == expected


async def test_unique_values_may_be_swapped_in_one_change(
    tmp_path: Path, opened: OpenDatabase
) -> None:
    first, second = rules(2)
    swapped = [
        Edit("rules", 1, Rule(id=1, ip=second.after.ip, target_node="x")),
        Edit("rules", 2, Rule(id=2, ip=first.after.ip, target_node="x")),
    ]
    async with opened(tmp_path) as database:
        await write(database, [first, second], 1)
        await write(database, swapped, 2)
        by_ip = dict((await database.load()).rule_by_ip)
        assert by_ip == {first.after.ip: 2, second.after.ip: 1}


async def test_ids_are_never_reused(tmp_path: Path, opened: OpenDatabase) -> None:
    async with opened(tmp_path) as database:
        await write(database, EVERYTHING, 1)
        await write(database, [Edit("nodes", 7, None), Edit("rules", 1, None)], 2)
    async with opened(tmp_path) as database:
        state = await database.load()
        assert state.next_id("nodes") == 8
        assert state.next_id("rules") == 2
        assert state.next_id("Group_") == 2
        assert state.next_id("Interface:") == 2


async def test_a_rolled_back_write_leaves_no_trace(tmp_path: Path, opened: OpenDatabase) -> None:
    async with opened(tmp_path) as database:
        await write(database, rules(1), 1)
        before = await database.load()
        await database.begin(EVERYTHING, 2)
        await database.rollback()
        assert await database.load() == before
        await write(database, EVERYTHING[:3], 2)


async def test_an_open_transaction_is_rolled_back(tmp_path: Path, opened: OpenDatabase) -> None:
    async with opened(tmp_path) as database:
        await database.begin(rules(1), 1)
        await write(database, EVERYTHING, 1)
        assert await database.load() == DesiredState().with_edits(EVERYTHING, 1)
        await database.begin(rules(1), 2)
    async with opened(tmp_path) as database:
        assert (await database.load()).revision == 1


async def test_a_concurrent_writer_is_detected(tmp_path: Path, opened: OpenDatabase) -> None:
    async with opened(tmp_path) as mine, opened(tmp_path) as other:
        await write(other, rules(1), 1)
        with pytest.raises(Failed, match="another program has written"):
            await mine.begin(rules(1), 1)
        await write(mine, rules(1, start=2), 2)
        assert set((await mine.load()).rules) == {1, 2}


async def test_a_commit_without_a_transaction_fails(tmp_path: Path, opened: OpenDatabase) -> None:
    async with opened(tmp_path) as database:
        with pytest.raises(Failed, match="no transaction"):
            await database.commit()


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
    for table in ("nodes", "rules", "lines", "services", "whitelist", "settings", "numbers"):
        assert getattr(restored, table) == getattr(saved, table)
    assert restored.next_id("rules") == 1020


async def test_an_older_database_is_backed_up_before_its_upgrade(
    tmp_path: Path, opened: OpenDatabase
) -> None:
    async with opened(tmp_path / "data") as database:
        await write(database, rules(3), 1)
        with closing(sqlite3.connect(database.path)) as older, older:
            for table in schema.PRIVATE:
                older.execute(f"DROP TABLE {table.name}")
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

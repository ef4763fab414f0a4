"""A disk that is full or fails: the write fails, the old state stays, and later writes succeed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Failed
from egressd.model.nouns import Rule
from egressd.store.api_token import ApiToken
from egressd.store.database import Database
from tests.support.disks import fill, small_disk
from tests.support.tracing import traced

if TYPE_CHECKING:
    from tests.store.rig import CrashServer, EditsOf, OpenDatabase
    from tests.support.needs import Need

pytestmark = pytest.mark.slow


SYNCS = "fsync,fdatasync"


@pytest.fixture
def disk(tmp_path: Path, need: Need) -> Iterator[Path]:
    """A file system of 2 MiB."""
    need("root, who may mount a small file system", os.geteuid() == 0)
    with small_disk(tmp_path / "disk") as path:
        yield path


def many(start: int) -> list[Edit]:
    """Return 1,000 rules with long comments, which exceed the free space in a log."""
    return [
        Edit(
            "rules",
            i,
            Rule(id=i, ip=f"10.0.{i >> 8}.{i & 255}/32", comment="c" * 300, target_node="x"),
        )
        for i in range(start, start + 1000)
    ]


async def write(database: Database, edits: list[Edit], revision: int) -> None:
    await database.begin(edits, revision)
    await database.commit()


async def test_a_full_disk_fails_writes_until_there_is_room(
    disk: Path, opened: OpenDatabase
) -> None:
    state = DesiredState().with_edits(many(1), 1)
    async with opened(disk / "data") as database:
        await write(database, many(1), 1)
        token = ApiToken(disk / "data")
        token.ensure()
        first = token.token()
        filler = fill(disk)

        for _ in range(3):
            with pytest.raises(Failed, match="database or disk is full"):
                await write(database, many(2000), 2)
            assert await database.load() == state
        with pytest.raises(Failed, match="No space left"):
            token.reset()
        with pytest.raises(Failed, match=r"full|No space left"):
            await database.backup(disk / "backup")
        assert token.token() == first

        filler.unlink()
        await write(database, many(2000), 2)
        token.reset()
    async with opened(disk / "data") as database:
        assert await database.load() == state.with_edits(many(2000), 2)


async def test_a_full_disk_creates_no_database(disk: Path, opened: OpenDatabase) -> None:
    filler = fill(disk)
    with pytest.raises(Failed, match=r"full|No space left"):
        async with opened(disk / "data"):
            pass
    filler.unlink()
    async with opened(disk / "data") as database:
        assert await database.load() == DesiredState()


async def test_a_failed_sync_fails_the_write_until_it_succeeds(
    tmp_path: Path,
    server: CrashServer,
    opened: OpenDatabase,
    states: list[DesiredState],
) -> None:
    server.say(f"endure {tmp_path / 'data'}")
    with traced(server.hear_ready(), SYNCS, f"inject={SYNCS}:error=EIO"):
        server.say("go")
        assert "disk I/O error" in server.hear()
        server.hear_ready()
    server.say("go")
    assert server.hear() == "recovered"
    assert server.hear() == "ended 0"
    async with opened(tmp_path / "data") as database:
        assert await database.load() == states[3]


async def test_a_crash_does_not_restore_a_failed_write(
    tmp_path: Path,
    server: CrashServer,
    opened: OpenDatabase,
    states: list[DesiredState],
    edits: EditsOf,
) -> None:
    """The failed transaction is whole in the log: only its fsync failed.

    It is the third one: those before it are for a new log's header and its name.
    """
    server.say(f"endure {tmp_path / 'data'}")
    pid = server.hear_ready()
    with traced(pid, SYNCS, f"inject={SYNCS}:error=EIO:when=3"):
        server.say("go")
        assert "disk I/O error" in server.hear()
        assert server.hear_ready() == pid
        os.kill(pid, signal.SIGKILL)
        assert server.hear() == f"ended {signal.SIGKILL:d}"
    async with opened(tmp_path / "data") as database:
        assert await database.load() == states[2]
        await write(database, edits(3), 3)

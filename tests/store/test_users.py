"""The api's user owns the files, and root may access them without locking that user out."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from egressd.model.desired import Edit
from egressd.model.nouns import Rule
from egressd.store.api_token import ApiToken
from egressd.store.database import Database
from egressd.store.files import prepare_directory
from egressd.store.preparation import prepare

if TYPE_CHECKING:
    from tests.store.rig import OpenDatabase
    from tests.support.needs import Need


NOBODY = 65534


@pytest.fixture
async def data(need: Need) -> AsyncIterator[Path]:
    """A data directory of another user, in a place that this user can reach."""
    need("root, who may become another user", os.geteuid() == 0)
    with tempfile.TemporaryDirectory() as reachable:
        Path(reachable).chmod(0o755)
        directory = Path(reachable) / "data"
        prepare_directory(directory, (NOBODY, NOBODY))
        yield directory


def as_nobody(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run `work` in a process that has given up root for good."""
    prepare()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            asyncio.run(work())
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


def rule(key: int) -> Edit:
    return Edit("rules", key, Rule(id=key, ip=f"10.0.0.{key}/32", target_node="DIRECT"))


async def write_a_rule(data: Path) -> None:
    database = Database(data)
    await database.open()
    revision = (await database.load()).revision + 1
    await database.begin([rule(revision)], revision)
    await database.commit()
    await database.close()


async def test_root_and_the_apis_user_write_in_turn(data: Path, opened: OpenDatabase) -> None:
    # In threads: a child forked inside a running event loop could not run one itself.
    await asyncio.to_thread(as_nobody, lambda: write_a_rule(data))
    async with opened(data) as database:
        await database.begin([rule(2)], 2)
        await database.commit()
        owners = {(file.stat().st_uid, file.stat().st_mode & 0o777) for file in data.iterdir()}
        assert owners == {(NOBODY, 0o600)}
        await asyncio.to_thread(as_nobody, lambda: read_beside(data))
    await asyncio.to_thread(as_nobody, lambda: write_a_rule(data))
    async with opened(data) as database:
        assert set((await database.load()).rules) == {1, 2, 3}


async def read_beside(data: Path) -> None:
    """Read while root has the database open, with a log and shared memory created by root."""
    database = Database(data)
    await database.open()
    assert set((await database.load()).rules) == {1, 2}
    await database.close()


async def test_a_token_created_by_root_can_be_read_and_reset(data: Path) -> None:
    ApiToken(data).reset()

    async def read_and_reset() -> None:
        token = ApiToken(data)
        assert token.token() != token.reset()

    await asyncio.to_thread(as_nobody, read_and_reset)

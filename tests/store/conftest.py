"""What the tests of the store share."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest

from egressd.store.database import Database

OpenDatabase = Callable[[Path], AbstractAsyncContextManager[Database]]
Need = Callable[[str, bool], None]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def opened() -> OpenDatabase:
    """Open the database of a directory, and close it at the end of the block."""

    @asynccontextmanager
    async def open_database(directory: Path) -> AsyncIterator[Database]:
        database = Database(directory)
        await database.open()
        try:
            yield database
        finally:
            await database.close()

    return open_database


@pytest.fixture
def need() -> Need:
    """Skip the test when the machine lacks something; in CI, where it must be, fail."""

    def check(what: str, present: bool) -> None:
        if present:
            return
        if os.environ.get("CI") == "true":
            pytest.fail(f"this machine lacks {what}")
        pytest.skip(f"this machine lacks {what}")

    return check


@pytest.fixture
def strace(need: Need) -> str:
    """The path of strace, which kills and fails system calls at a chosen moment."""
    path = shutil.which("strace")
    need("the package strace", path is not None)
    assert path is not None
    return path

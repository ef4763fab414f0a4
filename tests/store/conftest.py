"""Fixtures of the tests of the store."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import pytest

from egressd.model.desired import DesiredState
from egressd.store.database import Database
from tests.store.boxes import Rig, command_server
from tests.store.rig import SERVER, CrashServer, EditsOf, OpenDatabase, Site
from tests.support import postgres
from tests.support.needs import Need
from tests.support.netns import Namespace

_SITES = itertools.count()


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory in memory, if possible: no test here is about the disk's own speed."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as path:
        yield Path(path)


@pytest.fixture
def opened() -> OpenDatabase:
    """A function that opens the database of a directory, and closes it at the end of the block."""

    @asynccontextmanager
    async def open_database(directory: Path) -> AsyncIterator[Database]:
        database = Database(directory)
        await database.open()
        try:
            yield database
        finally:
            await database.close()

    return open_database


@pytest.fixture(scope="module")
def running_server() -> Iterator[CrashServer]:
    server = CrashServer()
    yield server
    server.close()


@pytest.fixture
def server(need: Need, request: pytest.FixtureRequest) -> CrashServer:
    """A server of processes to be killed, if strace is installed."""
    need("the package strace", shutil.which("strace") is not None)
    running: CrashServer = request.getfixturevalue("running_server")
    return running


@pytest.fixture
def edits() -> EditsOf:
    """A function that returns the edits that ``crash_server.py`` makes in a revision."""
    space: dict[str, object] = {"__name__": "crash_server"}
    exec(compile(SERVER.read_text(), str(SERVER), "exec"), space)
    return cast(EditsOf, space["edits"])


@pytest.fixture
async def states(tmp_path: Path, opened: OpenDatabase, edits: EditsOf) -> list[DesiredState]:
    """The first revisions, the second of which is stored in ``data``."""
    states = [DesiredState()]
    for revision in (1, 2, 3):
        states.append(states[-1].with_edits(edits(revision), revision))
    async with opened(tmp_path / "data") as database:
        for revision in (1, 2):
            await database.begin(edits(revision), revision)
            await database.commit()
            if revision == 1:
                await database.backup(tmp_path / "backup")
    return states


@pytest.fixture(scope="session")
def running_postgres() -> Iterator[postgres.Server]:
    with postgres.server() as server:
        yield server


@pytest.fixture
def site(need: Need, request: pytest.FixtureRequest) -> Site:
    """A site of its own in a PostgreSQL server, which has no state yet."""
    need("the package postgresql, and root", bool(postgres.PROGRAMS) and os.geteuid() == 0)
    server: postgres.Server = request.getfixturevalue("running_postgres")
    made = Site(server, f"site{next(_SITES)}")
    made.make()
    return made


@pytest.fixture(scope="module")
def made_rig(namespaces: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("rig")
    with (
        Namespace() as namespace,
        postgres.server(namespace.path, "listen_addresses=127.0.0.1") as server,
        command_server(folder) as commands,
    ):
        made = Rig(server, folder, namespace, commands)
        made.init()
        yield made


@pytest.fixture
def rig(need: Need, request: pytest.FixtureRequest) -> Iterator[Rig]:
    """A site of one box; others that joined are removed after the test."""
    need("the package postgresql", bool(postgres.PROGRAMS))
    need("a machine id", Path("/etc/machine-id").exists())
    made: Rig = request.getfixturevalue("made_rig")
    yield made
    made.query(
        "UPDATE change SET member = (SELECT id FROM member WHERE name = 'a');"
        " DELETE FROM beat; DELETE FROM member WHERE name <> 'a'"
    )

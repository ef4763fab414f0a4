"""Fixtures of the lines' tests: a network of their own, and a folder whose units are ended."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from egressd.netd.lines.daemon_group import kill_all
from tests.lab.netns import Namespace

Body = Callable[[], Coroutine[None, None, None]]


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    """A network with nothing but a loopback."""
    with Namespace() as made:
        yield made


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """A folder with a short name (a Unix socket lies in it); units that still run there are
    ended.
    """
    folder = Path(tempfile.mkdtemp(prefix="lines-"))
    yield folder

    async def end() -> None:
        for place in filter(Path.is_dir, folder.rglob("*")):
            await kill_all(place)

    asyncio.run(end())
    shutil.rmtree(folder)


@pytest.fixture
def inside(namespace: Namespace) -> Callable[[Body], None]:
    """Runs a test's body in the namespace, in a process of its own."""

    def run(body: Body) -> None:
        namespace.run(lambda: asyncio.run(body()))

    return run

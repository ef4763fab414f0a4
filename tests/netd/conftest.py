"""A folder for daemons, whose units are ended."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from egressd.netd.system.daemon_group import kill_all


@pytest.fixture
def run_dir() -> Iterator[Path]:
    """A folder with a short name (a Unix socket lies in it); units that still run there are
    ended.
    """
    folder = Path(tempfile.mkdtemp(prefix="units-"))
    yield folder

    async def end() -> None:
        for place in filter(Path.is_dir, folder.rglob("*")):
            await kill_all(place)

    asyncio.run(end())
    shutil.rmtree(folder)

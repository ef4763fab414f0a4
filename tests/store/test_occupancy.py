"""The lock on the data directory, for one process at a time."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path

import pytest

from egressd.model.errors import Failed
from egressd.store.occupancy import occupied

HOLD = """
import asyncio, sys
from pathlib import Path
from egressd.store.occupancy import occupied

async def main():
    async with occupied(Path(sys.argv[1]), 5) as is_held:
        print(is_held, flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


async def test_a_second_process_waits_for_the_end_of_the_first(tmp_path: Path) -> None:
    first = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLD, str(tmp_path), stdin=PIPE, stdout=PIPE
    )
    try:
        assert first.stdout is not None
        assert await first.stdout.readline() == b"True\n"
        async with occupied(tmp_path, 0.1) as is_held:
            assert not is_held
        async with occupied(tmp_path, 60, lambda: True) as is_held:
            assert not is_held
    finally:
        first.kill()
    async with occupied(tmp_path, 5) as is_held:
        assert is_held
    await first.wait()


async def test_the_lock_is_released_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        async with occupied(tmp_path, 0):
            raise ZeroDivisionError
    async with occupied(tmp_path, 0) as is_held:
        assert is_held


async def test_a_missing_directory_or_a_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("absent", "link"):
        with pytest.raises(Failed, match="work on"):
            async with occupied(tmp_path / name, 0):
                pass

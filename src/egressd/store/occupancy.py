"""A lock on the data directory, for one process at a time.

Two apis would each assume that the database is unchanged since their last write: a change
acknowledged by one would not be put in force by the other. So the api locks its directory for its
whole life, and so does a command that writes there without it. The kernel releases the lock when
the process ends for any reason.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from egressd.model.errors import Failed

_LOOK_S: Final = 0.02


@asynccontextmanager
async def occupied(
    folder: Path, patience_s: float, is_over: Callable[[], bool] = lambda: False
) -> AsyncIterator[bool]:
    """Hold the existing directory `folder` until the block ends; yields whether it is held.

    It is not held if another process has held it for `patience_s` seconds, or if `is_over` returns
    True meanwhile, which ends the wait. Raises Failed.
    """
    try:
        # The directory itself is locked: a lock file could be owned by either of two users.
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise Failed(f"work on {folder}", error.strerror or str(error)) from error
    deadline = asyncio.get_running_loop().time() + patience_s
    try:
        while not (is_held := _lock(descriptor)):
            if is_over() or asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(_LOOK_S)
        yield is_held
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

"""One process at a time works on a data directory.

Two apis would each take the database for as they left it: what one has answered the other would
not put in force. So the api holds its directory for as long as it lives, and so does a command
that writes there without it. The kernel lets go of it with the process, whatever that dies of.
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
    """Hold `folder`, which is there, until the block ends; whether it is held.

    It is not when another process has held it for `patience_s` seconds, or when `is_over` says
    meanwhile that there is nothing more to wait for. Raises Failed.
    """
    try:
        # The directory itself is what is locked: no file to be owned by one of two users.
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

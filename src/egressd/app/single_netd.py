"""One netd at a time: for a run directory, and in a network namespace.

Two netds would each take the other for a foreign program, and undo its changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
from collections.abc import Callable
from functools import partial
from pathlib import Path

from egressd.model.errors import Failed
from egressd.netd.kernel.nft import Nft

_PREDECESSOR_S = 20.0
"""Seconds that an earlier netd has to end."""


async def be_the_only_one(folder: Path, nft: Nft) -> contextlib.ExitStack:
    """Wait until no other netd works with the run directory that `folder` is in, or in this network
    namespace. The run directory is claimed until the returned stack is closed, the namespace until
    `nft` is. Raises Failed.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.chmod(0o700)  # any user that can open a file can lock it (flock(2))
    deadline = asyncio.get_running_loop().time() + _PREDECESSOR_S
    with contextlib.ExitStack() as held:
        file = held.enter_context((folder / "lock").open("ab"))
        await _claim(partial(_lock, file.fileno()), deadline, f"another one works with {folder}")
        await _claim(nft.claim, deadline, "another egressd runs in this network namespace")
        return held.pop_all()


def _lock(descriptor: int) -> bool:
    """Lock a file. False if another process has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


async def _claim(claim: Callable[[], bool], deadline: float, refusal: str) -> None:
    """Call `claim` until it succeeds. Raises Failed if it does not until `deadline`, in the loop's
    time.
    """
    while not claim():
        if asyncio.get_running_loop().time() > deadline:
            raise Failed("start netd", refusal)
        await asyncio.sleep(0.02)

"""A process's proof that its event loop turns, for the watchdog of its supervisor.

The supervisor is systemd (sd_notify(3), WatchdogSec= of systemd.service(5)) or `supervise`, which
gives its children a pipe. A process that has given proof once and then none for a while is frozen,
or its loop hangs: the supervisor kills it and starts another. Traffic continues meanwhile.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final, TypeVar

from egressd.app import readiness
from egressd.app.supervise import HUNG_AFTER_S, PIPE

T = TypeVar("T")

_PROOFS: Final = 3
"""Proofs within the time after which the process counts as hung."""


async def proved(work: Awaitable[T]) -> T:
    """Do `work`, and prove meanwhile that the event loop turns."""
    proving = asyncio.create_task(_prove())
    try:
        return await work
    finally:
        proving.cancel()


async def _prove() -> None:
    pipe = int(os.environ.get(PIPE, "-1"))
    allowed = HUNG_AFTER_S if pipe >= 0 else readiness.watchdog_s()
    if allowed is None:
        return
    while True:
        if pipe >= 0:
            with suppress(OSError):  # the supervisor is gone, or has not read for long
                os.write(pipe, b"\n")
        else:
            readiness.alive()
        await asyncio.sleep(allowed / _PROOFS)

"""A pacer that turns a stream of events into calls: few, one at a time, and no event is missed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

_SETTLE_S = 0.02
_RETRY_S = 1.0

log = structlog.get_logger()


class Debouncer:
    """Awaits `call` soon after `notify`.

    Events within 20 ms make one call; an event during a call leads to another. After a call the
    next waits for `rest` times the duration of that call (`rest_max_s` at most), so that a machine
    that changes all the time doesn't keep us busy. A call that raises is logged and repeated after
    a second.
    """

    def __init__(
        self, call: Callable[[], Awaitable[None]], rest_max_s: float = 0.5, *, rest: int = 4
    ) -> None:
        self._call = call
        self._rest = rest
        self._rest_max_s = rest_max_s
        self._told = asyncio.Event()
        self._task = asyncio.create_task(self._follow())

    def notify(self) -> None:
        """Report an event."""
        self._told.set()

    async def close(self) -> None:
        """Make no more calls; a call under way is cancelled."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def _follow(self) -> None:
        while True:
            await self._told.wait()
            await asyncio.sleep(_SETTLE_S)
            self._told.clear()
            began = time.monotonic()
            try:
                await self._call()
            except Exception as error:
                log.warning("cannot adapt to a kernel change", error=str(error))
                await asyncio.sleep(_RETRY_S)
                self._told.set()
            else:
                await asyncio.sleep(min(self._rest * (time.monotonic() - began), self._rest_max_s))

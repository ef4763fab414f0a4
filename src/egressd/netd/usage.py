"""What the device uses at the moment, measured once for all who ask at about the same time.

Reading the memory of netd and four workers takes 20 ms of the kernel's time (it walks their
page tables), counting 100,000 flows 400 ms. Platforms poll the status; without a bound,
80 requests a second kept netd from everything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

FRESH_S: Final = 1.0
"""How old a measurement may be, in seconds."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement."""

    connections: int
    """Tracked flows of LAN clients."""
    memory: int
    """Bytes that netd and the engine workers hold."""


class Meter:
    """Hands out what `measure`, which runs in a thread, found within the last second."""

    def __init__(self, measure: Callable[[], Usage]) -> None:
        self._measure = measure
        self._lock = asyncio.Lock()
        self._last: Usage | None = None
        self._stale_at = 0.0

    async def read(self) -> Usage:
        """The usage, at most a second old. Raises what `measure` raises."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if self._last is None or loop.time() >= self._stale_at:
                self._last = await asyncio.to_thread(self._measure)
                self._stale_at = loop.time() + FRESH_S
            return self._last

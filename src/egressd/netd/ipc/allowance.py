"""Limits on netd's memory and time that one user of netd's socket may take at once.

netd answers the api, which it does not trust, and root's commands. Each user has an allowance of
its own, so that requests of the api cannot keep root from being answered. A request beyond the
allowance waits: netd does not read the socket meanwhile, so that its sender waits, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from egressd.model.messages import PROBES_MAX, REQUEST_MAX

CONNECTIONS_MAX: Final = 16
"""Connections of one user; further ones are closed at once. The api has one, and a second one for
the moment in which it halts netd."""
_BYTES_MAX: Final = REQUEST_MAX
_BYTES_MIN: Final = _BYTES_MAX // 128
"""Bytes that a request counts for at least, so that no more than 128 are in progress."""

_ERRANDS_MAX: Final = 4


class Share:
    """An amount that is lent in parts, in the order of the requests."""

    def __init__(self, whole: int) -> None:
        self._free = self._whole = whole
        self._turn = asyncio.Lock()
        self._returned = asyncio.Event()

    async def borrow(self, part: int) -> None:
        """Wait until `part` is free, or all of the whole if that is smaller, and take it."""
        async with self._turn:
            while self._free < min(part, self._whole):
                self._returned.clear()
                await self._returned.wait()
            self._free -= min(part, self._whole)

    def give_back(self, part: int) -> None:
        """Return a borrowed part."""
        self._free += min(part, self._whole)
        self._returned.set()

    @asynccontextmanager
    async def lent(self, part: int) -> AsyncIterator[None]:
        """Borrow `part` for as long as the context lasts."""
        await self.borrow(part)
        try:
            yield
        finally:
            self.give_back(part)


class Allowance:
    """The shares of one user."""

    def __init__(self) -> None:
        self.connections = 0
        self.bytes = Share(_BYTES_MAX)
        """Bytes of requests that are being read or answered. A decoded request takes up to ten
        times its length."""
        self.plans = Share(1)
        """Plans and changes: netd's own work waits for one of them at most."""
        self.checks = Share(1)
        """Checks of the system, each of which reads the list of all kernel modules."""
        self.probes = Share(PROBES_MAX)
        """Nodes that are being measured."""
        self.errands = Share(_ERRANDS_MAX)
        """Messages that are being sent, and pages that are being fetched."""


def weight(length: int) -> int:
    """Return the bytes that a request of `length` bytes counts for."""
    return max(length, _BYTES_MIN)

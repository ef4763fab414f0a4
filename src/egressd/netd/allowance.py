"""What one user of netd's socket may have of netd's memory and time at once.

netd answers the api, which it does not trust, and root's commands. Each user has an allowance of
its own, so that root is answered whatever the api asks for. What is over it waits: the socket
is not read on meanwhile, so that the one who asks waits, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from egressd.model.messages import PROBES_MAX, REQUEST_MAX

CONNECTIONS_MAX: Final = 16
"""More are closed at once. The api has one, and another for the moment in which it halts netd."""
_BYTES_MAX: Final = REQUEST_MAX
_BYTES_MIN: Final = _BYTES_MAX // 128
"""What a request counts for at least, so that no more than 128 are under way."""


class Share:
    """An amount that is lent in parts, in the order in which they are asked for."""

    def __init__(self, whole: int) -> None:
        self._free = self._whole = whole
        self._turn = asyncio.Lock()
        self._returned = asyncio.Event()

    async def borrow(self, part: int) -> None:
        """Wait until `part`, or all of a smaller whole, is free, and take it."""
        async with self._turn:
            while self._free < min(part, self._whole):
                self._returned.clear()
                await self._returned.wait()
            self._free -= min(part, self._whole)

    def give_back(self, part: int) -> None:
        """Return what was borrowed."""
        self._free += min(part, self._whole)
        self._returned.set()

    @asynccontextmanager
    async def lent(self, part: int) -> AsyncIterator[None]:
        """Have `part` for as long as the context lasts."""
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
        """Of requests that are read or under way: decoded they take up to ten times as much."""
        self.plans = Share(1)
        """Plans and changes: what netd does by itself waits for one at most."""
        self.probes = Share(PROBES_MAX)
        """Nodes that are measured."""


def weight(length: int) -> int:
    """What a request of so many bytes counts for."""
    return max(length, _BYTES_MIN)

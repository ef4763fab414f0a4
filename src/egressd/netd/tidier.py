"""Removes what the kernel still tracks of flows that were cut.

`seal` has cut the flows of a moved client already; their conntrack entries only stand in the
way of new flows with the same ports (a UDP flow would go on without address translation).
Walking the kernel's table takes 25 ms even when it is empty, so it is done beside the
changes and not within them, for all clients that moved meanwhile in one walk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from egressd.netd.kernel import conntrack
from egressd.netd.kernel.follower import Follower


class Tidier:
    """Tidies up after clients in the background.

    `is_current(source, mark)` tells whether a flow of that source address (4 bytes) with that
    conntrack mark is one the client may have now: such flows are left alone.
    """

    def __init__(self, is_current: Callable[[bytes, int], bool]) -> None:
        self._is_current = is_current
        self._clients: set[str] = set()
        self._follower = Follower(self._tidy)

    def add(self, clients: Iterable[str]) -> None:
        """Tidy up after these addresses and ranges soon."""
        self._clients.update(clients)
        self._follower.tell()

    async def close(self) -> None:
        """Stop; what was not done stays."""
        await self._follower.close()

    async def _tidy(self) -> None:
        clients, self._clients = self._clients, set()
        await asyncio.to_thread(conntrack.delete_stale, clients, self._is_current)

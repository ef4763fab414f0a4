"""The secrets that charon uses at the moment: one per server."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address


class SharedSecrets:
    """Lends charon's secret of a server to lines. Lines with another secret for the same server
    wait for their turn, and later ones wait behind them: otherwise lines with the secret in use
    could follow each other without end.
    """

    def __init__(self) -> None:
        self._used: dict[IPv4Address, str] = {}
        self._users: Counter[IPv4Address] = Counter()
        self._waiting: defaultdict[IPv4Address, dict[int, str]] = defaultdict(dict)
        """Server -> the secrets that lines wait for, by number, in the order of arrival."""
        self._numbers = itertools.count()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def lent(self, server: IPv4Address, secret: str) -> AsyncIterator[None]:
        """Keep this secret in place while the block lasts."""
        async with self._changed:
            await self._take(server, secret)
        try:
            yield
        finally:
            async with self._changed:
                self._users[server] -= 1
                if not self._users[server]:
                    del self._users[server], self._used[server]
                self._changed.notify_all()

    async def _take(self, server: IPv4Address, secret: str) -> None:
        waiting, number = self._waiting[server], next(self._numbers)
        waiting[number] = secret

        def is_due() -> bool:
            earlier = itertools.takewhile(number.__ne__, waiting)
            is_first = all(waiting[one] == secret for one in earlier)
            return is_first and self._used.get(server, secret) == secret

        try:
            await self._changed.wait_for(is_due)
            self._used[server] = secret
            self._users[server] += 1
        finally:
            del waiting[number]
            if not waiting:
                del self._waiting[server]
            self._changed.notify_all()

"""The secrets that charon uses at the moment: it knows one a server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Address


class SharedSecrets:
    """Lines with another secret for the same server wait for their turn to use it."""

    def __init__(self) -> None:
        self._used: dict[IPv4Address, str] = {}
        self._users: Counter[IPv4Address] = Counter()
        self._changed = asyncio.Condition()

    @asynccontextmanager
    async def lent(self, server: IPv4Address, secret: str) -> AsyncIterator[None]:
        """While the block lasts, nobody puts another secret in the place of this one."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._used.get(server, secret) == secret)
            self._used[server] = secret
            self._users[server] += 1
        try:
            yield
        finally:
            async with self._changed:
                self._users[server] -= 1
                if not self._users[server]:
                    del self._users[server], self._used[server]
                self._changed.notify_all()

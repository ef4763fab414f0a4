"""Tells how the device is doing, unasked and soon: whoever watches knows why clients are blocked.

Most of what changes is told by an event (links and routes, workers, nodes, resolvers), and looked
at soon after it. Some things nobody tells of (a full connection table, an upgraded library), so
that all is looked at once a second as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from egressd.model.messages import Status, StatusNews
from egressd.netd.kernel.follower import Follower

PERIOD_S: Final = 1.0


class Teller:
    """Publishes what `view` gives whenever that is another. `view` is cheap."""

    def __init__(self, view: Callable[[], Status], publish: Callable[[StatusNews], object]) -> None:
        self._view = view
        self._publish = publish
        self._told: Status | None = None
        self._follower: Follower | None = None
        self._ticking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to tell."""
        self._follower = Follower(self._look)
        self._ticking = asyncio.create_task(self._tick())

    async def close(self) -> None:
        """Tell no more."""
        if self._ticking is not None and self._follower is not None:
            self._ticking.cancel()
            await asyncio.wait({self._ticking})
            await self._follower.close()
            self._follower = None

    def tell(self) -> None:
        """Something happened that may be seen."""
        if self._follower is not None:
            self._follower.tell()

    @property
    def news(self) -> StatusNews:
        """How the device is doing now."""
        # Lines have news of their own.
        return StatusNews(msgspec.structs.replace(self._view(), lines={}))

    async def _look(self) -> None:
        news = self.news
        if news.status != self._told:
            self._told = news.status
            self._publish(news)

    async def _tick(self) -> None:
        while True:
            self.tell()
            await asyncio.sleep(PERIOD_S)

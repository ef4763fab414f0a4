"""Publish the status of the device soon after it changes, so that watchers know why clients are
blocked.

Most changes come with an event (links and routes, workers, nodes, resolvers), and the status is
read soon after it. Some changes raise no event (a full connection table, an upgraded library), so
the status is also read once a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from egressd.model.messages import Status, StatusNews
from egressd.netd.kernel.debounce import Debouncer
from egressd.netd.system.periodic import PeriodicTask

PERIOD_S: Final = 1.0


class StatusPublisher:
    """Publishes the result of `view` whenever it changes. `view` is cheap."""

    def __init__(self, view: Callable[[], Status], publish: Callable[[StatusNews], object]) -> None:
        self._view = view
        self._publish = publish
        self._told: Status | None = None
        self._follower: Debouncer | None = None
        self._ticks = PeriodicTask("publish the status", self._tick, PERIOD_S)

    def start(self) -> None:
        """Start publishing."""
        self._follower = Debouncer(self._refresh)
        self._ticks.start()

    async def close(self) -> None:
        """Stop publishing."""
        await self._ticks.close()
        if self._follower is not None:
            await self._follower.close()
            self._follower = None

    def notify(self) -> None:
        """Report an event that may change the status."""
        if self._follower is not None:
            self._follower.notify()

    @property
    def news(self) -> StatusNews:
        """The present status of the device."""
        # Lines are published in news of their own.
        return StatusNews(msgspec.structs.replace(self._view(), lines={}))

    async def _refresh(self) -> None:
        news = self.news
        if news.status != self._told:
            self._told = news.status
            self._publish(news)

    async def _tick(self) -> None:
        self.notify()

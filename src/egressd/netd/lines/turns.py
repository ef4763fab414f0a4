"""The order in which lines dial, when many want to at once.

An attempt costs netd and the daemons some 0.1 s of a processor, so that lines that all fail would
leave it no time for those that are up. Lines that have failed less often go first: one that was
lost does not wait behind hundreds whose server is gone. These have their turn all the same, however
many others there are.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Final

APART_S: Final = 0.1
"""Seconds after which another line may dial, where many want to."""
BURST: Final = 16
"""So many may at once, after a time in which none did."""
_FAILURE_S: Final = 1.0
"""A line lets those go first that come so much later for each failure that it has had more."""
_FAILURES: Final = 30
"""More failures than these count no more."""


class Turns:
    """Gives each line its turn. `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._full_at = 0.0
        """Time at which a whole burst may dial again."""
        self._numbers = itertools.count()
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._timer: asyncio.TimerHandle | None = None

    async def take(self, failures: int) -> None:
        """Return when a line that has failed so many times in a row may dial."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        rank = self._now() + _FAILURE_S * min(failures, _FAILURES)
        heapq.heappush(self._waiting, (rank, next(self._numbers), turn))
        self._give()
        try:
            await turn
        finally:
            turn.cancel()

    def _give(self) -> None:
        """Give as many turns as are due, and look again when the next one is."""
        now = self._now()
        while self._waiting:
            due_s = self._full_at - now - (BURST - 1) * APART_S
            if due_s > 0:
                self._look_in(due_s)
                return
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():  # it waits no longer
                turn.set_result(None)
                self._full_at = max(self._full_at, now) + APART_S

    def _look_in(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._give)

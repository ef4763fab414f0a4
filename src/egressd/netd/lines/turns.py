"""The order in which lines dial, if many are due at once.

An attempt costs netd and the daemons some 0.1 s of CPU time, so many failing lines would leave none
for lines that are up. Lines with fewer failures go first: a line that was lost does not wait behind
hundreds whose server is gone. Those have their turn all the same, however many other lines there
are.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Final

APART_S: Final = 0.1
"""Seconds between the turns of lines, if many are due."""
BURST: Final = 16
"""Number of lines that may dial at once, after a pause."""
_FAILURE_S: Final = 1.0
"""Seconds by which each failure moves a line back in the queue."""
_FAILURES: Final = 30
"""Number of failures beyond which further ones do not move a line back."""


class Turns:
    """Gives each line its turn. `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._full_at = 0.0
        """The time at which a whole burst may dial again."""
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
        """Give the turns that are due, and set a timer for the next one."""
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

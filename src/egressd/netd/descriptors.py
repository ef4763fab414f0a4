"""Watches how many of the files that they may have open the engine workers do.

No client can take more than its share, but there are many clients. A worker that has none left
takes no connection and makes none: that is not for its nodes to be told of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from egressd.netd.kernel import open_files

log = structlog.get_logger()

PERIOD_S: Final = 2.0
_FULL: Final = 0.98
"""As a part of the limit."""
_WHY: Final = (
    "all of the {} files that an engine worker may have open are in use: no new connection gets"
    " through it"
)


class Descriptors:
    """Keeps `full`. `changed` is called when that is another."""

    def __init__(self, workers: Callable[[], Mapping[int, int]], changed: Callable[[], None]):
        """`workers` tells the process of each worker that lives, by its slot."""
        self._workers = workers
        self._changed = changed
        self.full: Mapping[int, str] = {}
        """Slot of a worker -> why it takes no further connection."""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._attend())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _attend(self) -> None:
        while True:
            full = {}
            for slot, pid in self._workers().items():
                try:
                    limit = open_files.limit(pid)
                    enough = int(limit * _FULL)
                    if await asyncio.to_thread(open_files.count, pid, enough) >= enough:
                        full[slot] = _WHY.format(limit)
                except OSError:
                    continue  # it has ended
            if full != self.full:
                self.full = full
                self._changed()
            await asyncio.sleep(PERIOD_S)

"""Watch how many of their permitted open files the engine workers use.

No client can take more than its share, but there are many clients. A worker without a free
descriptor neither accepts nor makes connections: that is not a failure of its nodes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from egressd.model.wording import Sentence, say
from egressd.netd.kernel import open_files
from egressd.netd.system.periodic import PeriodicTask

PERIOD_S: Final = 2.0
_FULL: Final = 0.98
"""Fraction of the limit from which a worker counts as full."""


class WorkerDescriptors:
    """Keeps `full` up to date. `changed` is called when it changes."""

    def __init__(self, workers: Callable[[], Mapping[int, int]], changed: Callable[[], None]):
        """`workers` gives the pid of each living worker, by its slot."""
        self._workers = workers
        self._changed = changed
        self.full: Mapping[int, Sentence] = {}
        """Slot of a worker -> reason why it takes no further connection."""
        self._task = PeriodicTask("count the descriptors of workers", self._check, PERIOD_S)

    def start(self) -> None:
        """Start looking."""
        self._task.start()

    async def close(self) -> None:
        """Stop."""
        await self._task.close()

    async def _check(self) -> None:
        full = {}
        for slot, pid in self._workers().items():
            try:
                limit = open_files.limit(pid)
                enough = int(limit * _FULL)
                if await asyncio.to_thread(open_files.count, pid, enough) >= enough:
                    full[slot] = say("files-used-up", limit=limit)
            except OSError:
                continue  # the worker has ended
        if full != self.full:
            self.full = full
            self._changed()

"""The api's works in the background, which have no end of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import structlog

log = structlog.get_logger()

_REPEAT_S = 60.0
"""Seconds after which a work is run again that a fault has ended."""

Work: TypeAlias = Coroutine[Any, Any, None]


class Background:
    """Works in tasks. `end` is called when a fault has ended one that the api cannot be without."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        self._tasks: list[asyncio.Task[None]] = []

    def run(self, work: Work, name: str) -> None:
        """Run a work that the api cannot be without."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def repeat(self, work: Callable[[], Work], name: str) -> None:
        """Run a work that no client's traffic depends on, and again after a fault, which is
        logged: the api does not end for it.
        """
        self.run(_repeated(work, name), name)

    async def close(self) -> None:
        """End all works."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            log.error(
                "task ended, and the api ends", task=task.get_name(), exc_info=task.exception()
            )
            self._end()


async def _repeated(work: Callable[[], Work], name: str) -> None:
    while True:
        try:
            await work()
        except Exception:
            log.exception("task failed, and is run again", task=name, in_s=_REPEAT_S)
        await asyncio.sleep(_REPEAT_S)

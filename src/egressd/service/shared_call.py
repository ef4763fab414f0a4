"""One call for all callers that ask for the same at about the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SharedCall(Generic[T]):
    """A call whose answer is for each caller that asked for it before it began.

    A caller never gets the answer of a call that began earlier: what it asks about may have
    happened meanwhile. So there is one call at a time, and the next one is for all that wait.
    """

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        self._call = call
        self._current: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def get(self) -> T:
        """Return what the call returns, or raise what it raises."""
        waiting = self._next
        if waiting is None:
            waiting = self._next = asyncio.create_task(self._after(self._current))
            waiting.add_done_callback(_retrieve)
        return await asyncio.shield(waiting)

    async def _after(self, current: asyncio.Task[T] | None) -> T:
        if current is not None:
            await asyncio.wait({current})
        self._current, self._next = self._next, None
        return await self._call()


def _retrieve(task: asyncio.Task[T]) -> None:
    """Have an exception count as seen, though each caller may be cancelled."""
    if not task.cancelled():
        task.exception()

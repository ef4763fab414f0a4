"""What happens on the device, handed on to everyone who listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from egressd.model.messages import Event

_BEHIND_MAX = 256
"""Events a slow listener may be behind before it loses the oldest."""


class EventHub:
    """Takes events from netd's connection and from the use cases."""

    def __init__(self) -> None:
        self._queues: set[asyncio.Queue[Event | None]] = set()

    def publish(self, event: Event) -> None:
        """Hand `event` to every listener."""
        for queue in self._queues:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(event)

    async def stream(self) -> AsyncIterator[Event]:
        """Everything from now on, until `close`."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue(_BEHIND_MAX)
        self._queues.add(queue)
        try:
            while (event := await queue.get()) is not None:
                yield event
        finally:
            self._queues.discard(queue)

    def close(self) -> None:
        """End every stream."""
        for queue in self._queues:
            if queue.full():
                queue.get_nowait()
            queue.put_nowait(None)

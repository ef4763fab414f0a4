"""Events of the device, published to all listeners."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import Final

from egressd.api.events import PastEvent
from egressd.model.bounds import LATEST_EVENTS_MAX
from egressd.model.messages import Event

BEHIND_MAX: Final = 256
"""Events that may wait for a slow listener. If more come, it loses them all, and gets `MISSED`."""

MISSED: Final = Event(
    topic="change",
    subject="everything",
    text="too many changes at once to list them",
    code="missed",
)


class EventHub:
    """Takes events from netd's connection and from the use cases."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """`now` returns the Unix time."""
        self._now = now
        self._latest: deque[PastEvent] = deque(maxlen=LATEST_EVENTS_MAX)
        self._queues: set[asyncio.Queue[Event | None]] = set()

    def publish(self, event: Event) -> None:
        """Send `event` to every listener."""
        self._latest.append(PastEvent(self._now(), event))
        for queue in self._queues:
            if queue.full():
                while not queue.empty():
                    queue.get_nowait()
                queue.put_nowait(MISSED)
            queue.put_nowait(event)

    def latest(self, limit: int) -> list[PastEvent]:
        """Return the latest events, the last one first."""
        return [*islice(reversed(self._latest), limit)]

    async def stream(self) -> AsyncIterator[Event]:
        """Yield every event from now on, until `close`."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue(BEHIND_MAX)
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

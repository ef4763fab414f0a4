"""What is measured once for all who ask at about the same time.

Reading the memory of netd and four workers takes 20 ms of the kernel's time (it walks their
page tables), counting 100,000 flows 400 ms, reading the counters of 10,000 rules 150 ms.
Platforms poll; without a bound, 80 requests for the status a second kept netd from everything
else.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, TypeVar

import structlog

log = structlog.get_logger()

T = TypeVar("T")

FRESH_S: Final = 1.0
"""How old a measurement may be, in seconds."""


class Meter(Generic[T]):
    """Hands out what `measure` found within the last second.

    With `kept` it may be older: by so many times as long as it took to measure. In the second half
    of that, who asks has it measured again meanwhile. So what takes long doesn't keep a processor
    busy, and nobody who asks often waits for it. `clock` gives seconds.
    """

    def __init__(
        self,
        measure: Callable[[], Awaitable[T]],
        *,
        kept: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._measure = measure
        self._kept = kept
        self._clock = clock
        self._lock = asyncio.Lock()
        self._renewal: asyncio.Task[None] | None = None
        self._last: T | None = None
        self._took_s = 0.0
        self._measured_at = 0.0

    async def read(self) -> T:
        """What was measured a moment ago. Raises what `measure` raises."""
        kept_s = self._kept * self._took_s
        if self._last is None or self._age() >= max(FRESH_S, kept_s):
            async with self._lock:
                if self._last is None or self._age() >= FRESH_S:
                    await self._renew()
        elif self._age() >= max(FRESH_S, kept_s / 2) and self._renewal is None:
            self._renewal = asyncio.create_task(self._renew_meanwhile())
        assert self._last is not None
        return self._last

    def _age(self) -> float:
        return self._clock() - self._measured_at

    async def _renew(self) -> None:
        begun = self._clock()
        self._last = await self._measure()
        self._measured_at = self._clock()
        self._took_s = self._measured_at - begun

    async def _renew_meanwhile(self) -> None:
        try:
            async with self._lock:
                await self._renew()
        except Exception as error:
            # Who asks once it is too old is told.
            log.warning("could not measure", error=str(error))
        finally:
            self._renewal = None

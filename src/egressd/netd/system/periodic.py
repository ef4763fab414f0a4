"""A task that checks something again and again, and that no failure ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import structlog

from egressd.model.errors import EgressdError

log = structlog.get_logger()


class PeriodicTask:
    """Awaits `check` in the running event loop, one call after the other, from `start` to `close`.

    `check` returns the seconds until its next call, or None for `period_s`. If it raises, the log
    says ``cannot ACTION``, once until another error or a call without one, and the next call
    follows after `period_s`.
    """

    def __init__(
        self, action: str, check: Callable[[], Awaitable[float | None]], period_s: float
    ) -> None:
        self._failure = f"cannot {action}"
        self._check = check
        self._period_s = period_s
        self._woken = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._logged = ""

    def start(self) -> None:
        """Make the first call soon."""
        self._task = asyncio.create_task(self._run())

    def wake(self) -> None:
        """Make the next call soon. During a call, another one follows it at once."""
        self._woken.set()

    async def close(self) -> None:
        """Make no more calls; a call under way is cancelled."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            wait_s: float | None = None
            try:
                wait_s = await self._check()
                self._logged = ""
            except Exception as error:
                self._log(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._period_s if wait_s is None else wait_s):
                    await self._woken.wait()

    def _log(self, error: Exception) -> None:
        if self._logged == repr(error):
            return
        self._logged = repr(error)
        if isinstance(error, EgressdError | OSError):
            log.warning(self._failure, error=str(error))
        else:
            log.error(self._failure, exc_info=error)

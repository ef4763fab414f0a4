"""Restart instances that should run and do not, until they run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import structlog

from egressd.model.errors import Failed

log = structlog.get_logger()

_FIRST_S: Final = 0.2
_MAX_S: Final = 30.0
"""Seconds between attempts: the first delay and the longest one."""


class Restarter:
    """Awaits `revive`, with a back-off, while `is_missing` returns True."""

    def __init__(
        self, revive: Callable[[], Awaitable[None]], is_missing: Callable[[], bool]
    ) -> None:
        """`revive` may raise Failed, which is logged."""
        self._revive = revive
        self._is_missing = is_missing
        self._attempts: asyncio.Task[None] | None = None
        self._newly_lost = asyncio.Event()

    def retry_later(self) -> None:
        """Try again later, since an instance will not start."""
        if self._attempts is None or self._attempts.done():
            self._attempts = asyncio.create_task(self._try_again())

    def retry_now(self) -> None:
        """Try at once, since a running instance was lost, even if other instances fail to start."""
        self._newly_lost.set()
        self.retry_later()

    def close(self) -> None:
        """Stop trying."""
        if self._attempts is not None:
            self._attempts.cancel()

    async def _try_again(self) -> None:
        delay = _FIRST_S
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(delay):
                    await self._newly_lost.wait()
            if self._newly_lost.is_set():
                self._newly_lost.clear()
                delay = _FIRST_S
            try:
                await self._revive()
            except Failed as error:
                log.warning("cannot restart engine instances", error=str(error))
            except Exception:
                # No error may end the attempts: clients are blocked until one succeeds.
                log.exception("cannot restart engine instances")
            # An instance lost meanwhile may be on standby and not count as missing: another
            # attempt takes care of its clients.
            if not self._is_missing() and not self._newly_lost.is_set():
                return
            delay = min(delay * 2, _MAX_S)

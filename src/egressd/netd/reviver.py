"""Starts again what should run and does not, until it does."""

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
"""Back-off between attempts."""


class Reviver:
    """Awaits `revive`, with a back-off, for as long as `is_missing`."""

    def __init__(
        self, revive: Callable[[], Awaitable[None]], is_missing: Callable[[], bool]
    ) -> None:
        """`revive` may raise Failed, which is logged."""
        self._revive = revive
        self._is_missing = is_missing
        self._attempts: asyncio.Task[None] | None = None
        self._newly_lost = asyncio.Event()

    def tell(self) -> None:
        """Something will not start: try again later."""
        if self._attempts is None or self._attempts.done():
            self._attempts = asyncio.create_task(self._try_again())

    def hurry(self) -> None:
        """Something ran and was lost: try at once, whatever fails otherwise."""
        self._newly_lost.set()
        self.tell()

    def close(self) -> None:
        """Try no more."""
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
                log.warning("could not revive instances", error=str(error))
            except Exception:
                # Whatever it is, clients are blocked until an attempt succeeds.
                log.exception("could not revive instances")
            # What was lost meanwhile may only have stood by: its clients are to be seen to, too.
            if not self._is_missing() and not self._newly_lost.is_set():
                return
            delay = min(delay * 2, _MAX_S)

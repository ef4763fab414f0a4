"""Notices WANs that have sent and heard nothing: a reason to ask whether they lead anywhere.

The kernel says nothing when a WAN stops to answer. Its counters do, within half a second of the
first packet that a client sends in vain. Only where others on the link are heard all the time
(broadcasts of a shared segment) is it left to the regular look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Final

import msgspec

from egressd.netd.kernel import traffic
from egressd.netd.kernel.traffic import Traffic

PERIOD_S: Final = 0.2
PATIENCE_S: Final = 0.3
"""Seconds from the first packet that is sent in vain; nearly all answers take less."""


class _Heard(msgspec.Struct):
    """What an interface had carried when it was heard last, in bytes."""

    received: int
    sent: int
    unanswered_since: float | None = None
    """By the loop's clock."""
    is_told: bool = False


class Silence:
    """Calls `suspect` once for each silence of one of the interfaces `names`."""

    def __init__(
        self,
        names: Callable[[], Collection[str]],
        suspect: Callable[[], None],
        read: Callable[[], Mapping[str, Traffic]] = traffic.read,
    ) -> None:
        self._names = names
        self._suspect = suspect
        self._read = read
        self._heard: dict[str, _Heard] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to listen."""
        self._task = asyncio.create_task(self._attend())

    async def close(self) -> None:
        """Stop."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def look(self, now: float) -> None:
        """Compare the counters with those of the last look. Raises OSError."""
        counted = self._read()
        known, self._heard = self._heard, {}
        for name in self._names():
            if (count := counted.get(name)) is None:
                continue
            heard = known.get(name)
            if heard is None or count.received != heard.received:
                heard = _Heard(count.received, count.sent)
            elif heard.unanswered_since is None and count.sent != heard.sent:
                heard.unanswered_since = now
            self._heard[name] = heard
        late = [
            heard
            for heard in self._heard.values()
            if not heard.is_told
            and heard.unanswered_since is not None
            and now - heard.unanswered_since >= PATIENCE_S
        ]
        for heard in late:
            heard.is_told = True
        if late:
            self._suspect()

    async def _attend(self) -> None:
        while True:
            with suppress(OSError):
                self.look(asyncio.get_running_loop().time())
            await asyncio.sleep(PERIOD_S)

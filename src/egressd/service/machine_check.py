"""The check of the machine, as ``egressd check`` makes it, by the running service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from egressd.model.errors import Failed
from egressd.model.findings import MachineFinding, heaviest_first
from egressd.model.wording import as_sentence, say
from egressd.service.ports import Netd

CHECK_S: Final = 10.0
"""Seconds after which a caller is answered without findings: the disk may hang."""
_NETD_S: Final = 5.0
"""Seconds that netd has for its part."""


class MachineCheck:
    """Makes one check at a time, whose findings all callers share that came meanwhile."""

    def __init__(self, netd: Netd, own: Callable[[], Sequence[MachineFinding]]) -> None:
        """`own` returns the findings that this process sees itself. It may block, and runs in a
        thread; it may raise Failed.
        """
        self._netd = netd
        self._own = own
        self._check: asyncio.Task[tuple[MachineFinding, ...]] | None = None

    async def findings(self) -> tuple[MachineFinding, ...]:
        """Return all that the machine lacks, the heaviest first. Raises Failed."""
        if self._check is None or self._check.done():
            self._check = asyncio.create_task(self._look())
        try:
            # Shielded: a caller that goes away must not take the answer from the others. A check
            # that hangs stays the only one.
            async with asyncio.timeout(CHECK_S):
                return await asyncio.shield(self._check)
        except TimeoutError:
            raise Failed("check the machine", f"no answer within {CHECK_S:g} seconds") from None

    async def _look(self) -> tuple[MachineFinding, ...]:
        system, own = await asyncio.gather(self._of_system(), asyncio.to_thread(self._own))
        return heaviest_first((*system, *own))

    async def _of_system(self) -> Sequence[MachineFinding]:
        try:
            async with asyncio.timeout(_NETD_S):
                return await self._netd.check_system()
        except TimeoutError:
            reason = f"no answer within {_NETD_S:g} seconds"
        except Failed as error:
            reason = error.cause
        return (
            MachineFinding(
                weight="blocking",
                subject="netd",
                text=say("netd-silent", reason=as_sentence(reason)),
                cost=say("netd-silent-cost"),
                cure=say("netd-silent-cure"),
            ),
        )

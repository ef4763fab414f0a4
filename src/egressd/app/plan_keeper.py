"""Keeps the plan in force up to date with what changes without a request."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from egressd.app.resolvers import DeviceResolvers
from egressd.app.use_cases import UseCases
from egressd.model.errors import EgressdError
from egressd.service.ports import Configuration

log = structlog.get_logger()

_PAUSE_S: Final = 10.0
"""Seconds between two looks."""


async def keep_plan(
    resolvers: DeviceResolvers,
    cases: UseCases,
    store: Configuration,
    pause_s: float = _PAUSE_S,
) -> None:
    """Keep the plan up to date with the device's resolvers, the license's limits on them and a
    site's database that was away, and put the plan in force if a failure has kept it from that.
    """
    told = cases.resolvers()
    while True:
        await asyncio.sleep(pause_s)
        resolvers.refresh()
        wanted = cases.resolvers()
        try:
            if await store.has_returned():
                await cases.ledger.reread()
            if wanted == told and cases.ledger.is_in_force:
                continue
            await cases.ledger.resync()
            told = wanted
        except EgressdError as error:
            log.warning("active plan differs from the stored configuration", error=str(error))

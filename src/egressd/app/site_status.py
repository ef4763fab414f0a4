"""The members of this box's site, as the database has them: for a command, without the service."""

from __future__ import annotations

import asyncio
from typing import Final

from egressd import __version__
from egressd.app.config import Config
from egressd.model.site import MemberState, SiteReading
from egressd.store.postgres.site_link import SiteLink

_BETWEEN_S: Final = 2.0
"""Seconds between two looks: a member that lives beats each second."""


def members_of(settings: Config) -> list[MemberState]:
    """Return the members of the site that `settings` name. Raises Failed."""
    before, after = asyncio.run(_readings(settings.cluster.database))
    beats = {seen.id: seen.n for seen in before.members}
    return [
        MemberState.of(seen, after, is_beating=seen.n is not None and beats.get(seen.id) != seen.n)
        for seen in after.members
        if not seen.is_revoked
    ]


async def _readings(database: str) -> tuple[SiteReading, SiteReading]:
    link = SiteLink(database, version=__version__)
    try:
        before = await link.read()
        await asyncio.sleep(_BETWEEN_S)
        return before, await link.read()
    finally:
        await link.close()

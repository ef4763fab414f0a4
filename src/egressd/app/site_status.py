"""The members of this box's site, as the database has them: for a command, without the service."""

from __future__ import annotations

import asyncio
from typing import Any, Final

from egressd import __version__
from egressd.app.config import Config
from egressd.model.site import MemberSeen, SiteReading
from egressd.store.postgres.site_link import SiteLink

_BETWEEN_S: Final = 2.0
"""Seconds between two looks: a member that lives beats each second."""


def members_of(settings: Config) -> list[dict[str, Any]]:
    """Return a row for each member of the site that `settings` name. Raises Failed."""
    before, after = asyncio.run(_readings(settings.cluster.database))
    beats = {seen.id: seen.n for seen in before.members}
    return [
        _row(seen, after, is_beating=seen.n is not None and beats.get(seen.id) != seen.n)
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


def _row(seen: MemberSeen, reading: SiteReading, *, is_beating: bool) -> dict[str, Any]:
    is_known = seen.applied >= 0
    return {
        "name": seen.name,
        "is_this": seen.id == reading.me,
        "version": seen.version,
        "revision": seen.applied if is_known else None,
        "lag": reading.head - seen.applied if is_known else None,
        "is_beating": is_beating,
        "is_shut_out": seen.is_fenced,
        "needs_lease": not seen.is_ungated,
        "blocked": list(seen.blocked),
    }

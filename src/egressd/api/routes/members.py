"""``/ops/members``: the boxes that share this one's configuration."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.routers import Router
from egressd.api.wire.answers import reply
from egressd.api.wire.members import MemberList

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/members",
    "The members of the site",
    answer=MemberList,
    example={
        "data": [
            {
                "name": "gw1",
                "is_this": True,
                "version": "0.2.0",
                "revision": 812,
                "lag": 0,
                "role": "active",
                "role_since": "2026-11-20T22:58:40Z",
                "is_beating": True,
                "is_shut_out": False,
                "needs_lease": True,
                "blocked": [],
            },
            {
                "name": "gw2",
                "is_this": False,
                "version": "0.2.0",
                "revision": 810,
                "lag": 2,
                "role": "fault",
                "role_since": "2026-11-20T22:58:41Z",
                "is_beating": False,
                "is_shut_out": True,
                "needs_lease": True,
                "blocked": ["Group_hk"],
            },
        ]
    },
    scope="read",
)
async def list_members(services: ServicesDep) -> Response:
    """Return the members as this box has seen them last, at most a second ago while the site's
    database answers. While it does not, none of them is known to beat.
    """
    return reply(MemberList(data=[*services.members()]))

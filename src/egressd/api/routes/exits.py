"""``/ops/exits``: the addresses that nodes, lines and WANs in use leave by."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.routers import Router
from egressd.api.wire.answers import reply
from egressd.api.wire.exits import ExitList
from egressd.model.exits import EXIT_URL

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/exits",
    "The addresses that targets in use leave by",
    answer=ExitList,
    example={
        "url": EXIT_URL,
        "check_interval_s": 900,
        "data": [
            {
                "name": "hk-01",
                "kind": "node",
                "ip": "203.0.113.7",
                "country": "HK",
                "seen_at": "2026-11-20T22:58:40Z",
                "changed_at": "2026-11-18T04:10:02Z",
                "shared_with": ["hk-02"],
                "error": "",
            }
        ],
    },
    scope="read",
)
async def list_exits(services: ServicesDep) -> Response:
    """Return the last answers; nothing is asked for this. An address is as old as `seen_at`."""
    exits = services.exits
    return reply(
        ExitList(
            url=exits.policy.url,
            check_interval_s=exits.policy.interval_s,
            data=exits.now(),
        )
    )

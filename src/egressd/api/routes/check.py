"""``/ops/check``: what the machine lacks."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.routers import Router
from egressd.api.wire.answers import reply
from egressd.api.wire.check import CheckFinding, CheckFindings
from egressd.model.wording import say

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/check",
    "What the machine lacks, with cost and cure",
    answer=CheckFindings,
    example={
        "data": [
            {
                "weight": "limiting",
                "subject": "fast path",
                "text": str(say("no-btf")),
                "cost": str(say("no-btf-cost")),
                "cure": str(say("no-btf-cure")),
            }
        ]
    },
    scope="read",
)
async def check_machine(services: ServicesDep) -> Response:
    """Return what `egressd check --json` prints. One check is made at a time: requests that arrive
    meanwhile share its answer. Takes up to 10 seconds.
    """
    found = await services.machine_check.findings()
    return reply(CheckFindings(data=[CheckFinding.of(each) for each in found]))

"""``/ops/trial``: changes that are taken back unless they are confirmed."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.gate import caller_of
from egressd.api.routers import Router
from egressd.api.wire.answers import reply
from egressd.api.wire.operations import Nothing
from egressd.api.wire.trials import SaidOfTrial, TrialAnswer, TrialBegin
from egressd.model.times import utc_text
from egressd.model.wording import say

_UNTIL: Final = "2026-11-20T23:03:40Z"

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/trial",
    "Changes on trial",
    answer=TrialAnswer,
    example={
        "is_running": True,
        "began_at": "2026-11-20T22:58:40Z",
        "ends_at": _UNTIL,
        "minutes": 5,
        "who": "token",
        "changes": 2,
    },
    scope="read",
)
async def show_trial(services: ServicesDep) -> Response:
    return reply(await services.trials.state())


@router.post(
    "/trial",
    "Put changes on trial",
    body={"minutes": 5},
    answer=SaidOfTrial,
    example={"msg": str(say("trial-begun", until=_UNTIL))},
    scope="admin",
    has_statuses=True,
)
async def begin_trial(request: Request, body: TrialBegin, services: ServicesDep) -> Response:
    """Take back as a whole what changes from now on, by any caller, unless it is confirmed in time;
    also if the device restarts meanwhile. Status 409 if there is a trial already.
    """
    trial = await services.trials.begin(body.minutes, caller_of(request.scope).name)
    return reply(SaidOfTrial(msg=say("trial-begun", until=utc_text(trial.ends_at))))


@router.post(
    "/trial/confirm",
    "Keep the changes on trial",
    body={},
    answer=SaidOfTrial,
    example={"msg": str(say("trial-confirmed", n=2))},
    scope="admin",
    has_statuses=True,
)
async def confirm_trial(body: Nothing, services: ServicesDep) -> Response:
    """Any caller of the scope `admin` may confirm: that the device can be reached is the proof."""
    return reply(SaidOfTrial(msg=say("trial-confirmed", n=await services.trials.confirm())))


@router.post(
    "/trial/revert",
    "Take the changes on trial back at once",
    body={},
    answer=SaidOfTrial,
    example={
        "msg": str(say("trial-ended", text=say("deleted", thing="rule", name="192.168.8.21")))
    },
    scope="admin",
    has_statuses=True,
)
async def revert_trial(body: Nothing, services: ServicesDep) -> Response:
    """It is a change of its own, which can be undone."""
    return reply(SaidOfTrial(msg=await services.trials.revert()))

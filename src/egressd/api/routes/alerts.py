"""``/ops/alerts``: channels, the policy, and the last messages."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.gate import hides_secrets
from egressd.api.lists import tags_of
from egressd.api.routers import Router
from egressd.api.services import Services
from egressd.api.wire.alerts import (
    AlertChannelCreate,
    AlertChannelRow,
    AlertChannelRows,
    AlertChannelSaved,
    AlertChannelUpdate,
    AlertPolicyAnswer,
    AlertPolicyReplace,
    AlertTested,
    SentAlerts,
    channel_row,
    channel_saved,
)
from egressd.api.wire.answers import Said, SaidId, reply
from egressd.api.wire.fields import IdInPath
from egressd.api.wire.objects import IfMatch
from egressd.api.wire.operations import Nothing
from egressd.api.wire.outcomes import deleted, done
from egressd.model.alerts import ALERTS
from egressd.model.drafts import Outcome
from egressd.model.nouns import AlertChannel, AlertPolicy
from egressd.model.wording import say
from egressd.service.masking import masked_channel
from egressd.service.versions import tag_of

_THING: Final = "alert channel"
_BODY: Final[dict[str, Any]] = {
    "name": "phone",
    "url": "ntfys://ntfy.example.org/egress-alerts",
    "via": "Group_hk",
    "is_enabled": True,
}
_ROW: Final = {
    "id": 1,
    "name": "phone",
    "service": "ntfys",
    "via": "Group_hk",
    "is_enabled": True,
    "created_at": "2026-11-20T22:58:40Z",
    "waiting": 0,
}
_POLICY: Final[dict[str, Any]] = {
    "on": ["node.failing", "line.down", "wan.down"],
    "for_s": 60,
    "quiet": "23:00-07:00",
    "channels": [],
}
_MISSING: Final = "there is no alert channel with the id 1"

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/alerts/channels",
    "List the channels of alerts",
    answer=AlertChannelRows,
    example={"data": [_ROW]},
    scope="read",
)
async def list_alert_channels(services: ServicesDep) -> Response:
    """A channel's URL is a secret, and is not shown; `service` is its scheme."""
    alerts = services.alerts
    waiting = alerts.waiting()
    rows = [channel_row(each, waiting.get(each.id, 0)) for each in alerts.channels()]
    return reply(AlertChannelRows(data=rows))


@router.post(
    "/alerts/channels",
    "Create a channel of alerts",
    body=_BODY,
    answer=AlertChannelSaved,
    example={**_ROW, "msg": "alert channel phone created"},
    refusal="there may be 32 alert channels at most",
    scope="write",
    status=201,
    has_statuses=True,
)
async def create_alert_channel(body: AlertChannelCreate, services: ServicesDep) -> Response:
    """A URL that names this device or a host of a LAN is refused, and so is a service that acts on
    this device.
    """
    return _saved(services, await services.alerts.create(body.draft()), is_new=True)


@router.get(
    "/alerts/channels/{id}",
    "A channel of alerts",
    answer=AlertChannelRow,
    example=_ROW,
    refusal=_MISSING,
    scope="read",
    has_statuses=True,
)
async def show_alert_channel(
    request: Request, channel_id: IdInPath, services: ServicesDep
) -> Response:
    """The ETag is that of the fields that can be changed, the URL among them, but for a token of
    scope `read`.
    """
    alerts = services.alerts
    channel = alerts.channel(channel_id)
    response = reply(channel_row(channel, alerts.waiting().get(channel_id, 0)))
    shown = masked_channel(channel) if hides_secrets(request.scope) else channel
    response.headers["etag"] = tag_of(shown)
    return response


@router.patch(
    "/alerts/channels/{id}",
    "Change a channel of alerts",
    body={"via": "DIRECT"},
    answer=AlertChannelSaved,
    example={**_ROW, "via": "DIRECT", "msg": "alert channel phone saved"},
    refusal=_MISSING,
    scope="write",
    has_statuses=True,
    is_conditional=True,
)
async def edit_alert_channel(
    channel_id: IdInPath, body: AlertChannelUpdate, services: ServicesDep, if_match: IfMatch = ""
) -> Response:
    """A field that is not given stays."""
    outcome = await services.alerts.revise(channel_id, body.given(), tags_of(if_match))
    return _saved(services, outcome, is_new=False)


@router.delete(
    "/alerts/channels/{id}",
    "Delete a channel of alerts",
    answer=SaidId,
    example={"msg": "alert channel phone deleted", "id": 1},
    refusal=_MISSING,
    scope="write",
    has_statuses=True,
    is_conditional=True,
)
async def delete_alert_channel(
    channel_id: IdInPath, services: ServicesDep, if_match: IfMatch = ""
) -> Response:
    """Alerts that wait for it are not sent."""
    return deleted(_THING, await services.alerts.delete(channel_id, tags_of(if_match)))


@router.post(
    "/alerts/channels/{id}/test",
    "Send a message by a channel",
    body={},
    answer=AlertTested,
    example={"is_sent": False, "reason": "no answer within 30 s"},
    refusal=_MISSING,
    scope="write",
    has_statuses=True,
)
async def test_alert_channel(
    channel_id: IdInPath, body: Nothing, services: ServicesDep
) -> Response:
    """Answered once the service has taken the message, or after 30 s. It is sent at once, also in
    quiet hours and by a channel that is not enabled, by the channel's target or not at all.
    """
    problem = await services.alerts.test(channel_id)
    return reply(AlertTested(is_sent=not problem, reason=problem))


@router.get(
    "/alerts/policy",
    "What is alerted",
    answer=AlertPolicyAnswer,
    example={**_POLICY, "names": [*ALERTS]},
    scope="read",
)
async def show_alert_policy(services: ServicesDep) -> Response:
    response = reply(_policy_answer(services.alerts.policy()))
    response.headers["etag"] = services.alerts.policy_tag
    return response


@router.put(
    "/alerts/policy",
    "Replace what is alerted",
    body=_POLICY,
    answer=Said,
    example={"msg": "alerts saved"},
    scope="write",
    is_conditional=True,
)
async def replace_alert_policy(
    body: AlertPolicyReplace, services: ServicesDep, if_match: IfMatch = ""
) -> Response:
    outcome = await services.alerts.put_policy(body.policy(), tags_of(if_match))
    response = reply(Said(msg=done(say("alert-policy-saved"), outcome.notes)))
    response.headers["etag"] = tag_of(outcome.value)
    return response


@router.get(
    "/alerts/sent",
    "The last messages",
    answer=SentAlerts,
    example={
        "data": [
            {
                "at": "2026-11-20T22:58:40Z",
                "channel": 1,
                "title": "gw1: tokyo fails: the node does not answer",
                "alerts": 1,
                "outcome": "sent",
                "reason": "",
            }
        ]
    },
    scope="read",
)
async def list_sent_alerts(services: ServicesDep) -> Response:
    """Return the last 100 attempts of this box."""
    return reply(SentAlerts(data=[*services.alerts.sent()]))


def _saved(services: Services, outcome: Outcome[AlertChannel], *, is_new: bool) -> Response:
    found = outcome.value
    waiting = services.alerts.waiting().get(found.id, 0)
    msg = done(say("created" if is_new else "saved", thing=_THING, name=found.name), outcome.notes)
    response = reply(channel_saved(found, waiting, msg), 201 if is_new else 200)
    response.headers["etag"] = tag_of(found)
    if is_new:
        response.headers["location"] = f"{OPS_PREFIX}/alerts/channels/{found.id}"
    return response


def _policy_answer(policy: AlertPolicy) -> AlertPolicyAnswer:
    return AlertPolicyAnswer(
        on=policy.on,
        for_s=policy.for_s,
        quiet=policy.quiet,
        channels=policy.channels,
        names=tuple(ALERTS),
    )

"""``/ops/subscriptions``: lists of nodes at URLs, which are fetched again and again."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.gate import hides_secrets
from egressd.api.lists import tags_of
from egressd.api.routers import Router
from egressd.api.services import Services
from egressd.api.wire.answers import SaidId, reply
from egressd.api.wire.fields import IdInPath
from egressd.api.wire.objects import IfMatch
from egressd.api.wire.outcomes import deleted, done
from egressd.api.wire.subscriptions import (
    SubscriptionChange,
    SubscriptionCreate,
    SubscriptionDelete,
    SubscriptionRefresh,
    SubscriptionRefreshed,
    SubscriptionRow,
    SubscriptionRows,
    SubscriptionSaved,
    subscription_row,
    subscription_saved,
)
from egressd.model.drafts import Outcome
from egressd.model.nouns import Subscription
from egressd.model.wording import NONE, say
from egressd.service.masking import masked_subscription
from egressd.service.subscription_refresh import refreshed_text
from egressd.service.versions import tag_of

_THING: Final = "subscription"
_BODY: Final[dict[str, Any]] = {
    "name": "seller",
    "url": "https://example.com/list?token=SECRET",
    "user_agent": "",
    "headers": {},
    "group": "seller",
    "interval_s": 0,
    "via": "DIRECT",
    "include": "",
    "exclude": "(?i)expire|traffic",
    "rename": {"^": "s-"},
    "gone": "keep",
    "is_enabled": True,
}
_COUNTS: Final = {
    "added": 1,
    "changed": 1,
    "renamed": 0,
    "gone": 0,
    "total": 2,
    "passed_over": 1,
}
_ROW: Final[dict[str, Any]] = {
    "id": 1,
    **{key: value for key, value in _BODY.items() if key not in ("url", "headers")},
    "host": "example.com",
    "header_names": [],
    "created_at": "2026-11-20T22:58:40Z",
    "nodes": 2,
    "nodes_gone": 0,
    "last": {
        "at": "2026-11-20T23:00:00Z",
        "succeeded_at": "2026-11-20T23:00:00Z",
        "error": "",
        "error_coded": None,
        "refreshed": _COUNTS,
    },
    "quota": {"used": 5000000000, "total": 10000000000, "expires_at": "2027-01-01T00:00:00Z"},
    "next_at": "2026-11-21T23:00:00Z",
}
_MISSING: Final = "there is no subscription with the id 1"

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/subscriptions",
    "List subscriptions",
    answer=SubscriptionRows,
    example={"data": [_ROW]},
    scope="read",
)
async def list_subscriptions(services: ServicesDep) -> Response:
    """A subscription's URL and header fields are secrets, and are not shown."""
    found = services.subscriptions
    return reply(SubscriptionRows(data=[subscription_row(found, each) for each in found.list()]))


@router.post(
    "/subscriptions",
    "Create a subscription",
    body=_BODY,
    answer=SubscriptionSaved,
    example={**_ROW, "msg": "subscription seller created"},
    refusal="there may be 64 subscriptions at most",
    scope="write",
    status=201,
    has_statuses=True,
)
async def create_subscription(body: SubscriptionCreate, services: ServicesDep) -> Response:
    """The list is fetched within seconds if it is enabled, and clients are let through. A URL that
    names this device or a host of a private network is refused, and so is a name that stands for
    one.
    """
    outcome = await services.subscriptions.create(body.draft())
    return _saved(services, outcome, is_new=True)


@router.get(
    "/subscriptions/{id}",
    "Show a subscription",
    answer=SubscriptionRow,
    example=_ROW,
    refusal=_MISSING,
    scope="read",
    has_statuses=True,
)
async def show_subscription(
    request: Request, subscription_id: IdInPath, services: ServicesDep
) -> Response:
    """The ETag is that of the fields that can be changed, URL and header fields among them, but for
    a token of scope `read`.
    """
    found = services.subscriptions.get(subscription_id)
    response = reply(subscription_row(services.subscriptions, found))
    shown = masked_subscription(found) if hides_secrets(request.scope) else found
    response.headers["etag"] = tag_of(shown)
    return response


@router.patch(
    "/subscriptions/{id}",
    "Change a subscription",
    body={"via": "Group_hk", "interval_s": 21600},
    answer=SubscriptionSaved,
    example={**_ROW, "msg": "subscription seller saved"},
    refusal=_MISSING,
    scope="write",
    has_statuses=True,
    is_conditional=True,
)
async def edit_subscription(
    subscription_id: IdInPath,
    body: SubscriptionChange,
    services: ServicesDep,
    if_match: IfMatch = "",
) -> Response:
    """A field that is not given stays. Nodes of the list that are in its group follow to another
    one.
    """
    outcome = await services.subscriptions.revise(subscription_id, body.given(), tags_of(if_match))
    return _saved(services, outcome, is_new=False)


@router.delete(
    "/subscriptions/{id}",
    "Delete a subscription",
    answer=SaidId,
    example={"msg": "subscription seller deleted", "id": 1},
    refusal=_MISSING,
    scope="write",
    has_statuses=True,
    is_conditional=True,
)
async def delete_subscription(
    subscription_id: IdInPath,
    query: Annotated[SubscriptionDelete, Query()],
    services: ServicesDep,
    if_match: IfMatch = "",
) -> Response:
    """Its nodes stay as your own, unless `nodes` is true."""
    outcome = await services.subscriptions.delete(
        subscription_id, tags_of(if_match), with_nodes=query.nodes
    )
    return deleted(_THING, outcome)


@router.post(
    "/subscriptions/{id}/refresh",
    "Fetch a subscription's list now",
    body={"dry_run": True},
    answer=SubscriptionRefreshed,
    example={
        "msg": "subscription seller refreshed: 1 added, 1 changed, 0 gone",
        "is_refreshed": True,
        "reason": "",
        "reason_coded": None,
        "refreshed": _COUNTS,
        "nodes": [
            {
                "name": "s-hk-02",
                "fate": "changed",
                "changed": ["password"],
                "reason": "",
                "reason_coded": None,
            }
        ],
    },
    refusal=_MISSING,
    scope="write",
    has_statuses=True,
)
async def refresh_subscription(
    subscription_id: IdInPath, body: SubscriptionRefresh, services: ServicesDep
) -> Response:
    """Answered once the list is in force, or after 30 s if its server does not answer. What a list
    changes is one change, which can be undone. Each node keeps its id and its rules: it is found
    again by its configuration, else by its name in the list, else by its server.
    """
    found = services.subscriptions
    name = found.get(subscription_id).name
    result = await found.refresh(subscription_id, dry_run=body.dry_run)
    # What a trial would do is no change, and what has no message is not recorded as one.
    said = NONE
    if not body.dry_run:
        failed = result.reason and say("subscription-failed", name=name, reason=result.reason)
        said = done(failed or refreshed_text(name, result.refreshed), result.notes)
    return reply(
        SubscriptionRefreshed(
            msg=said,
            is_refreshed=not result.reason,
            reason=result.reason,
            refreshed=result.refreshed,
            nodes=result.fates,
        )
    )


def _saved(services: Services, outcome: Outcome[Subscription], *, is_new: bool) -> Response:
    found = outcome.value
    msg = done(say("created" if is_new else "saved", thing=_THING, name=found.name), outcome.notes)
    response = reply(subscription_saved(services.subscriptions, found, msg), 201 if is_new else 200)
    response.headers["etag"] = tag_of(found)
    if is_new:
        response.headers["location"] = f"{OPS_PREFIX}/subscriptions/{found.id}"
    return response

"""``/ops/groups``: groups of targets, and the settings of their own that some have."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Query
from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.lists import tags_of
from egressd.api.routers import Router
from egressd.api.services import Services
from egressd.api.wire.answers import reply
from egressd.api.wire.groups import (
    GroupChange,
    GroupCreate,
    GroupNameInPath,
    GroupReplace,
    GroupRotate,
    GroupRotated,
    GroupRow,
    GroupRows,
    GroupSaved,
    GroupsQuery,
    SaidName,
    group_row,
    group_saved,
)
from egressd.api.wire.objects import IfMatch
from egressd.api.wire.outcomes import done
from egressd.model.drafts import Outcome
from egressd.model.nouns import TargetGroup
from egressd.model.wording import say
from egressd.service.versions import tag_of

_THING: Final = "group"
_BODY: Final[dict[str, Any]] = {
    "strategy": "fallback",
    "members": ["hk-01", "Interface:l2tp_1", "Interface:wan2"],
    "weights": {},
    "filter": "",
    "check_url": "",
    "check_interval_s": 10,
    "tolerance_ms": 50,
    "failback": 5,
    "on_switch": "keep",
    "rotate_every_s": 0,
}


def _member(target: str, kind: str, delay_ms: int | None, *, is_current: bool) -> dict[str, Any]:
    return {
        "target": target,
        "kind": kind,
        "is_alive": None if delay_ms is None else True,
        "delay_ms": delay_ms,
        "is_current": is_current,
        "reason": "",
        "reason_coded": None,
    }


_ROW: Final[dict[str, Any]] = {
    "name": "office",
    "has_settings": True,
    **_BODY,
    "created_at": "2026-11-20T22:58:40Z",
    "strategy_in_force": "fallback",
    "rules": 31,
    "resolved": [
        _member("hk-01", "node", 84, is_current=True),
        _member("Interface:l2tp_1", "interface", None, is_current=False),
        _member("Interface:wan2", "interface", 12, is_current=False),
    ],
    "missing": [],
}
_MISSING: Final = "there is no group office"

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/groups",
    "List groups",
    answer=GroupRows,
    example={"data": [_ROW]},
    scope="read",
)
async def list_groups(query: Annotated[GroupsQuery, Query()], services: ServicesDep) -> Response:
    """A group without settings of its own is the nodes that bear its name."""
    found = await services.groups.list(is_resolved=query.resolved)
    return reply(GroupRows(data=[group_row(view) for view in found]))


@router.post(
    "/groups",
    "Make settings of a group",
    body={"name": "office", **_BODY},
    answer=GroupSaved,
    example={**_ROW, "msg": "group office created"},
    scope="write",
    status=201,
    has_statuses=True,
)
async def create_group(body: GroupCreate, services: ServicesDep) -> Response:
    """The group may be a new one, or one that nodes bear the name of. Traffic to it leaves by its
    members or not at all. A group that is used by traffic without a rule, or by the whitelist, may
    have no members but nodes.
    """
    outcome = await services.groups.create(body.name, body.draft())
    return await _saved(services, outcome, is_new=True)


@router.get(
    "/groups/{name}",
    "Show a group",
    answer=GroupRow,
    example=_ROW,
    scope="read",
    has_statuses=True,
)
async def show_group(name: GroupNameInPath, services: ServicesDep) -> Response:
    """The ETag is that of the settings, to which the members' health makes no difference."""
    view = await services.groups.get(name)
    response = reply(group_row(view))
    response.headers["etag"] = services.groups.tag(name)
    return response


@router.put(
    "/groups/{name}",
    "Replace the settings of a group",
    body=_BODY,
    answer=GroupSaved,
    example={**_ROW, "msg": "group office saved"},
    scope="write",
    has_statuses=True,
    is_conditional=True,
    is_making=True,
)
async def replace_group(
    name: GroupNameInPath, body: GroupReplace, services: ServicesDep, if_match: IfMatch = ""
) -> Response:
    """Makes them if the group has none yet, which is answered 201."""
    outcome, is_new = await services.groups.put(name, body.draft(), tags_of(if_match))
    return await _saved(services, outcome, is_new=is_new)


@router.patch(
    "/groups/{name}",
    "Change settings of a group",
    body={"members": ["Interface:wan2", "hk-01"]},
    answer=GroupSaved,
    example={**_ROW, "msg": "group office saved"},
    scope="write",
    has_statuses=True,
    is_conditional=True,
)
async def change_group(
    name: GroupNameInPath, body: GroupChange, services: ServicesDep, if_match: IfMatch = ""
) -> Response:
    """A field that is not given stays; of a group without settings, as the device's settings have
    it.
    """
    outcome = await services.groups.revise(name, body.given(), tags_of(if_match))
    return await _saved(services, outcome, is_new=False)


@router.delete(
    "/groups/{name}",
    "Remove the settings of a group",
    answer=SaidName,
    example={"msg": "group office deleted", "name": "office"},
    scope="write",
    has_statuses=True,
    is_conditional=True,
)
async def delete_group(
    name: GroupNameInPath, services: ServicesDep, if_match: IfMatch = ""
) -> Response:
    """Removes the members that it lists, too. The nodes that bear its name stay its members; rules
    that name a group without members block their clients.
    """
    outcome = await services.groups.delete(name, tags_of(if_match))
    msg = done(say("deleted", thing=_THING, name=name), outcome.notes)
    return reply(SaidName(msg=msg, name=name))


@router.post(
    "/groups/{name}/rotate",
    "Give clients of a group another member",
    body={"client": "192.168.8.21"},
    answer=GroupRotated,
    example={"msg": "1 client has another member of group office", "clients": 1, "member": "hk-02"},
    scope="write",
    has_statuses=True,
)
async def rotate_group(name: GroupNameInPath, body: GroupRotate, services: ServicesDep) -> Response:
    """For groups of the strategy `sticky`. A client gets a member that works, and that it was not
    rotated away from lately while there are others. It keeps that one from then on. Open
    connections fare as `on_switch` says.
    """
    clients, member = await services.groups.rotate(name, body.client)
    msg = say("group-rotated", n=clients, name=name)
    return reply(GroupRotated(msg=done(msg, ()), clients=clients, member=member))


async def _saved(services: Services, outcome: Outcome[TargetGroup], *, is_new: bool) -> Response:
    name = outcome.value.name
    msg = done(say("created" if is_new else "saved", thing=_THING, name=name), outcome.notes)
    view = await services.groups.view(outcome.value)
    response = reply(group_saved(view, msg), 201 if is_new else 200)
    response.headers["etag"] = tag_of(outcome.value)
    if is_new:
        response.headers["location"] = f"{OPS_PREFIX}/groups/{quote(name, safe='')}"
    return response

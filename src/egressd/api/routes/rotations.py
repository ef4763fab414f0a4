"""``/ops/rotate/{key}``: rotation by a link, for phones and scripts."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import quote

from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from egressd.api import link_page
from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.gate import link_of
from egressd.api.link_keys import LINKS
from egressd.api.negotiation import wants_html
from egressd.api.routers import Router
from egressd.api.wire.answers import reply
from egressd.api.wire.fields import IdInPath
from egressd.api.wire.rotations import (
    LinkKey,
    LinkShown,
    NodeRotationId,
    RotateQuery,
    RotationBegun,
    RotationId,
    RotationShown,
    link_shown,
    rotation_begun,
    rotation_shown,
)
from egressd.model.errors import Failed, TooOften, Unfit
from egressd.model.names import parse_target
from egressd.model.rotations import FollowedRotation
from egressd.model.wording import Sentence, as_sentence, say
from egressd.service.rotations import RotationLink

_ACCEPTED: Final = 202
"""The HTTP status of a rotation that has begun."""
_RUNNING: Final[dict[str, Any]] = {
    "id": "5a6b7c8d9e0f1a2b",
    "state": "running",
    "target": "Group_office",
    "client": "192.168.8.21",
    "clients": 1,
    "member": "hk-02",
    "exit_before": "203.0.113.7",
    "exit_after": "",
    "reason": "",
    "began_at": "2026-11-20T22:58:40Z",
    "ended_at": "",
}
_DONE: Final = {
    **_RUNNING,
    "state": "done",
    "exit_after": "203.0.113.9",
    "ended_at": "2026-11-20T22:58:41Z",
}

_CHANGING: Final = {**_RUNNING, "target": "tokyo", "client": "", "clients": 0, "member": ""}

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/rotate/{key}",
    "Show a rotation link",
    answer=LinkShown,
    example={
        "target": "Group_office",
        "client": "192.168.8.21",
        "member": "hk-01",
        "exit_ip": "203.0.113.7",
    },
    has_statuses=True,
    is_by_key=True,
    is_html_too=True,
)
async def show_link(request: Request, key: LinkKey, services: ServicesDep) -> Response:
    """A browser gets a page with a button. Nothing is rotated, since messengers fetch the links in
    messages.
    """
    scope = request.scope
    try:
        view = await services.rotations.view(_link(scope), _source(scope))
    except Unfit as error:
        return _told(scope, error)
    if wants_html(scope):
        return link_page.of_link(scope, _path(key), view)
    return reply(link_shown(view))


@router.post(
    "/rotate/{key}",
    "Rotate by a link",
    answer=RotationBegun,
    example={**_RUNNING, "msg": "1 client has another member of group office"},
    status=_ACCEPTED,
    has_statuses=True,
    is_by_key=True,
    is_html_too=True,
)
async def rotate_by_link(
    request: Request, key: LinkKey, query: Annotated[RotateQuery, Query()], services: ServicesDep
) -> Response:
    """Gives a client another member of the link's group, as `POST /ops/groups/{name}/rotate` does:
    the one that asks, if its own rule names the group; else `client` has to be given. `Location`
    tells the new exit. By one link, a client may be rotated three times at once and then every
    10 s; too often is answered 429.
    """
    scope = request.scope
    try:
        rotation = await services.rotations.begin(_link(scope), _source(scope), query.client)
    except (Unfit, Failed) as error:
        return _told(scope, error)
    path = f"{_path(key)}/{rotation.id}"
    if wants_html(scope):
        response = link_page.of_rotation(scope, _path(key), rotation, _ACCEPTED)
    else:
        response = reply(rotation_begun(rotation, _begun(rotation)), _ACCEPTED)
    response.headers["location"] = path
    return response


@router.post(
    "/nodes/{id}/rotate",
    "Have a node leave by another address",
    answer=RotationBegun,
    example={**_CHANGING, "msg": "the node tokyo is asked for another address"},
    scope="write",
    status=_ACCEPTED,
    has_statuses=True,
)
async def rotate_node(node_id: IdInPath, services: ServicesDep) -> Response:
    """Fetches its `change_ip_url`, through the node or by `change_ip_via`. It is done once a page
    on the internet sees another address, and has failed after 120 s, or 30 s if `change_ip_url` had
    no good answer. `Location` tells.
    """
    rotation = await services.rotations.begin_node(node_id)
    response = reply(rotation_begun(rotation, _begun(rotation)), _ACCEPTED)
    response.headers["location"] = f"{OPS_PREFIX}/nodes/{node_id}/rotations/{rotation.id}"
    return response


@router.get(
    "/nodes/{id}/rotations/{rotation}",
    "Show what came of a node's rotation",
    answer=RotationShown,
    example={
        **_CHANGING,
        "state": "done",
        "exit_after": "203.0.113.9",
        "ended_at": "2026-11-20T22:59:12Z",
    },
    scope="read",
    has_statuses=True,
)
async def show_node_rotation(
    node_id: IdInPath, rotation_id: NodeRotationId, services: ServicesDep
) -> Response:
    return reply(rotation_shown(services.rotations.get_of_node(node_id, rotation_id)))


@router.get(
    "/rotate/{key}/{id}",
    "Show what came of a rotation by a link",
    answer=RotationShown,
    example=_DONE,
    has_statuses=True,
    is_by_key=True,
    is_html_too=True,
)
async def show_rotation(
    request: Request, key: LinkKey, rotation_id: RotationId, services: ServicesDep
) -> Response:
    """The link tells of the last rotations that it began: those of a group until the service is
    restarted.
    """
    scope = request.scope
    try:
        rotation = services.rotations.get(_link(scope), rotation_id)
    except Unfit as error:
        return _told(scope, error)
    if wants_html(scope):
        return link_page.of_rotation(scope, _path(key), rotation)
    return reply(rotation_shown(rotation))


def _told(scope: Scope, error: Unfit | Failed) -> Response:
    """Return a page that shows an error to a browser. Raises it for any other caller."""
    if not wants_html(scope):
        raise error
    if isinstance(error, Failed):
        return link_page.of_problem(scope, as_sentence(str(error)), 500)
    status = 429 if isinstance(error, TooOften) else 409
    response = link_page.of_problem(scope, error.sentence, status)
    if isinstance(error, TooOften):
        response.headers["retry-after"] = str(error.again_s)
    return response


def _begun(rotation: FollowedRotation) -> Sentence:
    target = parse_target(rotation.target)
    if target.kind == "node":
        return say("node-asked-to-change", name=target.name)
    return say("group-rotated", n=rotation.clients, name=target.name)


def _link(scope: Scope) -> RotationLink:
    caller = link_of(scope)
    return RotationLink(caller.id, caller.rotates)


def _path(key: str) -> str:
    return f"{LINKS}/{quote(key, safe='')}"


def _source(scope: Scope) -> str:
    return str((scope.get("client") or ("local",))[0])

"""``/ops/tokens``: tokens for programs that may do less than the device's own token."""

from __future__ import annotations

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.gate import caller_of
from egressd.api.link_keys import LINKS
from egressd.api.routers import Router
from egressd.api.services import Services
from egressd.api.wire.answers import reply
from egressd.api.wire.tokens import (
    SaidTokenId,
    TokenCreate,
    TokenCreated,
    TokenIdInPath,
    TokenList,
    TokenRow,
    token_fields,
)
from egressd.model.tokens import ROTATE, ScopedToken, link_target
from egressd.model.wording import say
from egressd.service.link_targets import shown_scopes
from egressd.service.tokens import PREFIX

_ID: Final = "1f2e3d4c"
_TOKEN: Final[dict[str, Any]] = {
    "id": _ID,
    "name": "grafana",
    "scopes": ["read", "metrics"],
    "created_at": "2026-11-20T22:58:40Z",
    "created_by": "session 5a6b7c8d",
    "expires_at": "2027-11-20T00:00:00Z",
    "is_expired": False,
    "last_used_at": "",
}

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/tokens",
    "List scoped tokens",
    answer=TokenList,
    example={"data": [{**_TOKEN, "last_used_at": "2026-11-21T08:15:02Z"}]},
    scope="admin",
)
async def list_tokens(services: ServicesDep) -> Response:
    return reply(TokenList(data=[_row(services, token) for token in services.tokens.list()]))


@router.post(
    "/tokens",
    "Make a scoped token",
    body={
        "name": "grafana",
        "scopes": ["read", "metrics"],
        "expires_at": "2027-11-20T00:00:00Z",
    },
    answer=TokenCreated,
    example={
        **_TOKEN,
        "msg": "token grafana created",
        "token": f"{PREFIX}AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCdE",
        "link": "",
    },
    scope="admin",
    status=201,
    has_statuses=True,
)
async def create_token(request: Request, body: TokenCreate, services: ServicesDep) -> Response:
    """The answer has the token, which cannot be shown again: the device keeps a digest. It counts
    at once, in a site at all members within seconds.

    `read` covers every GET, with passwords masked, but backups and share links. `write` covers the
    whole of `/svc/api/v1` and what edits the configuration under `/ops`. `admin` covers everything,
    tokens included. `metrics` and `events` cover `/ops/metrics` and `/ops/events` alone.
    `rotate:TARGET`, such as `rotate:Group_office`, makes a link, which covers nothing else.
    """
    scopes = body.scopes
    if rotated := link_target(scopes):
        scopes = [ROTATE + services.rotations.kept_target(rotated)]
    secret, token = await services.tokens.create(
        body.name, scopes, body.expires_at, caller_of(request.scope).name
    )
    shown = shown_scopes(services.ledger.state, token)
    row = token_fields(token, shown, is_expired=False)
    link = f"{LINKS}/{secret}" if token.rotates else ""
    msg = say("token-created", name=token.name)
    answer = TokenCreated(msg=msg, token=secret, link=link, **row)  # type: ignore[arg-type]
    response = reply(answer, 201)
    response.headers["location"] = f"{OPS_PREFIX}/tokens/{token.id}"
    return response


@router.get(
    "/tokens/{id}",
    "Show a scoped token",
    answer=TokenRow,
    example=_TOKEN,
    scope="admin",
    has_statuses=True,
)
async def show_token(token_id: TokenIdInPath, services: ServicesDep) -> Response:
    """A link's target is shown by its present name."""
    return reply(_row(services, services.tokens.get(token_id)))


@router.delete(
    "/tokens/{id}",
    "Delete a scoped token",
    answer=SaidTokenId,
    example={"msg": "token grafana deleted", "id": _ID},
    scope="admin",
    has_statuses=True,
)
async def delete_token(token_id: TokenIdInPath, services: ServicesDep) -> Response:
    """It does not count from now on, and event streams that were opened by it end at once. If
    this is answered 500, it would count again after a restart: delete it again.
    """
    token = await services.tokens.delete(token_id)
    return reply(SaidTokenId(msg=say("token-deleted", name=token.name), id=token_id))


def _row(services: Services, token: ScopedToken) -> TokenRow:
    scopes = shown_scopes(services.ledger.state, token)
    is_expired = services.tokens.is_expired(token)
    return TokenRow(**token_fields(token, scopes, is_expired))  # type: ignore[arg-type]

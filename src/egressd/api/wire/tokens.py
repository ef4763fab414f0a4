"""Scoped tokens on the wire."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from msgspec import Meta
from pydantic import AfterValidator, Field

from egressd.api.wire.answers import Answer, Message
from egressd.api.wire.bodies import Body
from egressd.api.wire.fields import ONE_LINE, Misfit, Text, Time, form
from egressd.model.names import GROUP_PREFIX, NODE_NAME_MAX
from egressd.model.times import utc_text
from egressd.model.tokens import ROTATE, SCOPES_MAX, TOKEN_NAME_MAX, ScopedToken

_SCOPE_MAX = len(ROTATE) + len(GROUP_PREFIX) + NODE_NAME_MAX


def _fitting_together(scopes: list[str]) -> list[str]:
    links = [scope for scope in scopes if scope.startswith(ROTATE)]
    if links and len(set(scopes)) > 1:
        raise Misfit("link-scope-alone", scope=links[0])
    return scopes


def _without_outer_white_space(value: str) -> str:
    if value != value.strip():
        raise Misfit("outer-white-space")
    return value


TokenName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=TOKEN_NAME_MAX,
        pattern=ONE_LINE,
        description="Names it in the record of changes. No other token has it.",
    ),
    AfterValidator(_without_outer_white_space),
]
TokenScope = Annotated[
    str,
    Field(
        max_length=_SCOPE_MAX,
        pattern=r"^(read|write|admin|metrics|events|rotate:[^\x00-\x1f\x7f-\x9f\u2028\u2029]+)$",
        json_schema_extra=form("token-scope"),
    ),
]
TokenIdInPath = Annotated[Text, Path(alias="id", description="The id of a token.")]


class TokenCreate(Body):
    """A token to make."""

    name: TokenName
    scopes: Annotated[
        list[TokenScope],
        Field(
            min_length=1,
            max_length=SCOPES_MAX,
            description="`rotate:` with a target is the only one of its token, which stands in a "
            "link.",
        ),
        AfterValidator(_fitting_together),
    ]
    expires_at: Annotated[
        Time | None, Field(description="When it stops counting; null if it does not.")
    ] = None


class TokenRow(Answer, frozen=True, kw_only=True):
    """A scoped token, without its secret, which the device does not keep."""

    id: str
    name: str
    scopes: list[str]
    created_at: str
    created_by: Annotated[str, Meta(description="As the record of changes names its author.")]
    expires_at: Annotated[str, Meta(description="Empty if it does not expire.")]
    is_expired: bool
    last_used_at: Annotated[
        str,
        Meta(description="Empty if it was never used. After a crash it may be 5 minutes early."),
    ]


class TokenList(Answer, frozen=True, kw_only=True):
    """All scoped tokens, the oldest first."""

    data: list[TokenRow]


class TokenCreated(TokenRow, frozen=True, kw_only=True):
    """The new token. Its secret is shown this once."""

    msg: Message
    token: Annotated[str, Meta(description="The secret that callers send.")]
    link: Annotated[
        str,
        Meta(description="The path of the link, which has the token as its key; else empty."),
    ]


class SaidTokenId(Answer, frozen=True, kw_only=True):
    """It is stored."""

    msg: Message
    id: str


def token_fields(token: ScopedToken, scopes: list[str], is_expired: bool) -> dict[str, object]:
    """Return the fields of a token as answers show them; `scopes` as operators name them."""
    return {
        "id": token.id,
        "name": token.name,
        "scopes": scopes,
        "created_at": utc_text(token.created_at),
        "created_by": token.created_by,
        "expires_at": utc_text(token.expires_at) if token.expires_at else "",
        "is_expired": is_expired,
        "last_used_at": utc_text(token.last_used_at) if token.last_used_at else "",
    }

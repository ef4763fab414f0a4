"""The live connections of clients."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path
from msgspec import Meta
from pydantic import BeforeValidator

from egressd.api.wire.answers import Answer, Message
from egressd.api.wire.bodies import Query
from egressd.api.wire.fields import Host, decimal
from egressd.service.connections import ClientConnection

ConnectionInPath = Annotated[
    int,
    Path(
        alias="id",
        ge=0,
        le=0xFFFF_FFFF,
        strict=True,
        description="The `id` of the connection in the list.",
    ),
    BeforeValidator(decimal),
]


class ClientQuery(Query):
    """The client."""

    client: Host


class ConnectionList(Answer, frozen=True, kw_only=True):
    """The live connections of a client."""

    total: Annotated[int, Meta(description="All that it has.")]
    data: Annotated[
        list[ClientConnection], Meta(description="At most 200, those of the most bytes first.")
    ]


class SaidClosed(Answer, frozen=True, kw_only=True):
    """They are closed."""

    msg: Message
    closed: int
    left: Annotated[int, Meta(description="Further ones: one call closes at most 4,096.")]

"""``/ops/connections``: the live connections of a client."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query
from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.routers import Router
from egressd.api.wire.answers import reply
from egressd.api.wire.connections import (
    ClientQuery,
    ConnectionInPath,
    ConnectionList,
    SaidClosed,
)
from egressd.model.wording import say

_CLIENT: Final = "192.168.8.21"
_CONNECTION: Final[dict[str, Any]] = {
    "id": 2_774_098_221,
    "protocol": "tcp",
    "state": "open",
    "is_inbound": False,
    "client_port": 51_412,
    "ip": "203.0.113.80",
    "port": 443,
    "exit": "hk-01",
    "kind": "node",
    "via": "wan1",
    "sent": 48_120,
    "received": 9_120_311,
    "age_s": 73,
}

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/connections",
    "The live connections of a client",
    answer=ConnectionList,
    example={"total": 1, "data": [_CONNECTION]},
    scope="read",
)
async def list_connections(
    query: Annotated[ClientQuery, Query()], services: ServicesDep
) -> Response:
    """Return the connections of an address that leave by this box, as the kernel tracks them now:
    not those to this box itself or between LANs. An answer may be some seconds old on a box that
    tracks very many.
    """
    found = await services.connections.list(query.client)
    return reply(ConnectionList(total=found.total, data=found.rows))


@router.delete(
    "/connections",
    "Close the connections of a client",
    answer=SaidClosed,
    example={"msg": f"31 connections of {_CLIENT} closed", "closed": 31, "left": 0},
    scope="write",
)
async def close_connections(
    query: Annotated[ClientQuery, Query()], services: ServicesDep
) -> Response:
    """Nothing keeps the client from opening new ones. At most 4,096 are closed by one call."""
    ended = await services.connections.close_all(query.client)
    client = query.client.strip()
    said = say("connections-closed", n=ended.closed, client=client)
    if ended.left:
        said = say("connections-left", closed=said, n=ended.left)
    return reply(SaidClosed(msg=said, closed=ended.closed, left=ended.left))


@router.delete(
    "/connections/{id}",
    "Close a connection",
    answer=SaidClosed,
    example={"msg": f"1 connection of {_CLIENT} closed", "closed": 1, "left": 0},
    refusal=f"{_CLIENT} has no connection 2774098221 any more",
    scope="write",
)
async def close_connection(
    connection: ConnectionInPath, query: Annotated[ClientQuery, Query()], services: ServicesDep
) -> Response:
    client = query.client.strip()
    await services.connections.close(client, connection)
    said = say("connections-closed", n=1, client=client)
    return reply(SaidClosed(msg=said, closed=1, left=0))

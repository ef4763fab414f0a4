"""``/nodes``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final

from fastapi import Query
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import LARGE_BODY, OPS_PREFIX
from egressd.api.gate import hides_secrets
from egressd.api.lists import send_cached
from egressd.api.routers import Resource, Router
from egressd.api.wire.answers import Updated, reply
from egressd.api.wire.bodies import Ids
from egressd.api.wire.fields import IdInPath
from egressd.api.wire.nodes import (
    DelayAllQuery,
    DelayQuery,
    NodeBatchUpdate,
    NodeCreate,
    NodeDelay,
    NodeDelays,
    NodeImport,
    NodeListImport,
    NodeReplace,
    NodeRow,
    NodeRows,
    NodesImported,
    node_row,
    nodes_imported,
)
from egressd.api.wire.outcomes import created, deleted, many_deleted, many_updated, saved
from egressd.model.errors import Missing
from egressd.model.wording import say
from egressd.service.masking import masked_node

_NODE: Final = "node"
_BODY: Final[dict[str, Any]] = {
    "name": "hk-01",
    "protocol": "socks5",
    "config_json": '{"server": "203.0.113.7", "port": 1080, "username": "u", "password": "p"}',
    "group": "hk",
}
_ROW: Final = {"id": 3, **_BODY, "created_at": "2026-11-20T22:58:40Z"}

router: Final = Router("Nodes")
operations: Final = Router("Operations", OPS_PREFIX)
resource: Final = Resource(router, "/nodes", _NODE, row=_ROW, body=_BODY)


@resource.list(NodeRows)
async def list_nodes(request: Request, services: ServicesDep) -> Response:
    """Passwords and the like are masked for a token of scope `read`."""
    revision, is_masked = services.ledger.revision, hides_secrets(request.scope)

    def rows() -> Iterator[NodeRow]:
        nodes = services.nodes.list()
        return map(node_row, map(masked_node, nodes) if is_masked else nodes)

    return send_cached(request, revision, rows, is_masked=is_masked)


@resource.create()
async def create_node(body: NodeCreate, services: ServicesDep) -> Response:
    return created(_NODE, await services.nodes.create(body.draft()))


@resource.replace()
async def replace_node(node_id: IdInPath, body: NodeReplace, services: ServicesDep) -> Response:
    """Another name renames it, and moves what refers to it."""
    return saved(_NODE, await services.nodes.replace(node_id, body.draft()))


@resource.delete(say("rules-blocked-as", n=2, reason=say("no-such-node", name="hk-01")))
async def delete_node(node_id: IdInPath, services: ServicesDep) -> Response:
    """Rules that name it block their clients until it exists again."""
    return deleted(_NODE, await services.nodes.delete(node_id))


@resource.delete_many({"ids": [3, 4]})
async def delete_nodes(body: Ids, services: ServicesDep) -> Response:
    return many_deleted(_NODE, await services.nodes.delete_many(body.ids))


@router.patch(
    "/nodes/batch",
    "Change the group, egress or DNS of several nodes",
    body={
        "ids": [3, 4],
        "group": "hk",
        "interface_name": "wan1",
        "dialer_proxy": None,
        "node_dns_profile": "custom",
        "node_dns_servers": "1.1.1.1,8.8.8.8",
    },
    answer=Updated,
    example={"msg": "2 nodes updated", "updated": 2},
)
async def update_nodes(body: NodeBatchUpdate, services: ServicesDep) -> Response:
    return many_updated(_NODE, await services.nodes.update_many(body.draft()))


@resource.import_rows(
    body={
        "type": "socks5",
        "text": "203.0.113.7,1080,u,p,hk-01\n203.0.113.8,1080,u,p,hk-02",
        "replace": False,
        "group": "hk",
        "autoNodeName": False,
        "autoNodeNameStartIndex": 1,
    },
    answer=NodesImported,
    example={
        "imported": 1,
        "skipped": 1,
        "errors": 1,
        "error_rows": ["line 2: port must be a whole number from 1 to 65535"],
    },
)
async def import_nodes(body: NodeImport, services: ServicesDep) -> Response:
    """Import rows by type; a share link may take the place of any row.

    socks5: `IP,Port,User,Pass[,Name]`. ss: `IP,Port,Cipher,Password[,Name]`.
    vlessvmess: `vless|uuid|server|port|...` or `vmess|uuid|server|port|...`.
    others: a Clash entry such as `name: a, type: trojan, server: b, port: 443, ...`, or whole
    documents: a configuration of Clash or sing-box, a subscription's base64, sellers' rows.

    `msg` names the parts of rows that have no effect.
    """
    outcome = await services.nodes.import_rows(
        body.type,
        body.text,
        replace=body.replace,
        group=body.group,
        auto_name=body.auto_node_name,
        start_index=body.auto_node_name_start_index,
    )
    return reply(nodes_imported(outcome))


@operations.post(
    "/import/nodes",
    "Import nodes from a list that may name private servers",
    body={
        "type": "socks5",
        "text": "192.168.8.40,1080,u,p,nas",
        "privateServers": True,
    },
    body_max=LARGE_BODY,
    answer=NodesImported,
    example={
        "msg": "1 node imported, 0 skipped",
        "imported": 1,
        "skipped": 0,
        "errors": 0,
        "error_rows": [],
    },
    scope="write",
)
async def import_node_list(body: NodeListImport, services: ServicesDep) -> Response:
    """As `/nodes/import`, which takes servers on the internet alone."""
    outcome = await services.nodes.import_rows(
        body.type,
        body.text,
        replace=body.replace,
        group=body.group,
        auto_name=body.auto_node_name,
        start_index=body.auto_node_name_start_index,
        private_servers=body.private_servers,
    )
    return reply(nodes_imported(outcome))


@router.get("/nodes/delay", "Measure a node's delay", answer=NodeDelay, example={"delay": 87})
async def measure_node(query: Annotated[DelayQuery, Query()], services: ServicesDep) -> Response:
    """A node without a delay should be held to be down."""
    try:
        measured = await services.nodes.delay(query.name, query.url, query.timeout)
    except Missing as error:
        return reply(NodeDelay(delay=-1, error=error.sentence))
    return reply(NodeDelay(delay=measured.delay, error=measured.error or UNSET))


@router.get(
    "/nodes/delay/all",
    "Measure all nodes' delays",
    answer=NodeDelays,
    example={"data": {"hk-01": 87, "hk-02": -1}},
)
async def measure_nodes(
    query: Annotated[DelayAllQuery, Query()], services: ServicesDep
) -> Response:
    delays = await services.nodes.delay_all(query.url, query.timeout)
    return reply(NodeDelays(data=dict(delays)))

"""``/nodes``."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI, Query
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import Response

from egressd.api.endpoints import LARGE_BODY, OPS_PREFIX, Endpoints
from egressd.api.lists import CachedList, send
from egressd.api.services import Services
from egressd.api.wire.answers import (
    Deleted,
    SaidId,
    Updated,
    done,
    reply,
)
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
    NodeRows,
    NodesImported,
    node_row,
    nodes_imported,
)
from egressd.model.errors import Missing
from egressd.model.wording import say

_BODY: dict[str, Any] = {
    "name": "hk-01",
    "protocol": "socks5",
    "config_json": '{"server": "203.0.113.7", "port": 1080, "username": "u", "password": "p"}',
    "group": "hk",
}
_ROW = {"id": 3, **_BODY, "created_at": "2026-11-20T22:58:40Z"}
_NOT_THERE = "there is no node with the id 3"


def add(app: FastAPI, services: Services) -> None:
    """Declare the endpoints."""
    endpoints = Endpoints(app, "Nodes")
    nodes = services.nodes
    listed = CachedList()

    @endpoints.add("GET", "/nodes", "List nodes", answer=NodeRows, example={"data": [_ROW]})
    async def list_nodes(request: Request) -> Response:
        return send(
            request, listed.listing(services.ledger.revision, lambda: map(node_row, nodes.list()))
        )

    @endpoints.add(
        "POST",
        "/nodes",
        "Create a node",
        body=_BODY,
        answer=SaidId,
        example={"msg": "node hk-01 created", "id": 3},
    )
    async def create_node(body: NodeCreate) -> Response:
        outcome = await nodes.create(body.draft())
        node = outcome.value
        return reply(
            SaidId(
                msg=done(say("created", thing="node", name=node.name), outcome.notes), id=node.id
            )
        )

    @endpoints.add(
        "PUT",
        "/nodes/{id}",
        "Replace a node",
        body=_BODY,
        answer=SaidId,
        example={"msg": "node hk-01 saved", "id": 3},
        refusal=_NOT_THERE,
    )
    async def replace_node(node_id: IdInPath, body: NodeReplace) -> Response:
        """Another name renames it, and moves what refers to it."""
        outcome = await nodes.replace(node_id, body.draft())
        return reply(
            SaidId(msg=done(say("saved", thing="node", name=body.name), outcome.notes), id=node_id)
        )

    @endpoints.add(
        "DELETE",
        "/nodes/{id}",
        "Delete a node",
        answer=SaidId,
        example={"msg": "node hk-01 deleted; 2 rules are blocked by it", "id": 3},
        refusal=_NOT_THERE,
    )
    async def delete_node(node_id: IdInPath) -> Response:
        """Rules that name it block their clients until it exists again."""
        outcome = await nodes.delete(node_id)
        msg = done(say("deleted", thing="node", name=outcome.value.name), outcome.notes)
        return reply(SaidId(msg=msg, id=node_id))

    @endpoints.add(
        "DELETE",
        "/nodes/batch",
        "Delete several nodes",
        body={"ids": [3, 4]},
        answer=Deleted,
        example={"msg": "2 nodes deleted", "deleted": 2},
    )
    async def delete_nodes(body: Ids) -> Response:
        outcome = await nodes.delete_many(body.ids)
        number = outcome.value
        msg = done(say("some-deleted", n=number, thing="node"), outcome.notes)
        return reply(Deleted(msg=msg, deleted=number))

    @endpoints.add(
        "PATCH",
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
    async def update_nodes(body: NodeBatchUpdate) -> Response:
        outcome = await nodes.update_many(body.draft())
        number = outcome.value
        msg = done(say("some-updated", n=number, thing="node"), outcome.notes)
        return reply(Updated(msg=msg, updated=number))

    @endpoints.add(
        "POST",
        "/nodes/import",
        "Import nodes",
        body={
            "type": "socks5",
            "text": "203.0.113.7,1080,u,p,hk-01\n203.0.113.8,1080,u,p,hk-02",
            "replace": False,
            "group": "hk",
            "autoNodeName": False,
            "autoNodeNameStartIndex": 1,
        },
        body_max=LARGE_BODY,
        answer=NodesImported,
        example={
            "msg": "1 node imported, 1 skipped",
            "imported": 1,
            "skipped": 1,
            "errors": 1,
            "error_rows": ["line 2: port must be a whole number from 1 to 65535"],
        },
    )
    async def import_nodes(body: NodeImport) -> Response:
        """Import rows by type; a share link may take the place of any row.

        socks5: `IP,Port,User,Pass[,Name]`. ss: `IP,Port,Cipher,Password[,Name]`.
        vlessvmess: `vless|uuid|server|port|...` or `vmess|uuid|server|port|...`.
        others: a Clash entry such as `name: a, type: trojan, server: b, port: 443, ...`, or whole
        documents: a configuration of Clash or sing-box, a subscription's base64, sellers' rows.

        `msg` names the parts of rows that have no effect.
        """
        outcome = await nodes.import_rows(
            body.type,
            body.text,
            replace=body.replace,
            group=body.group,
            auto_name=body.auto_node_name,
            start_index=body.auto_node_name_start_index,
        )
        return reply(nodes_imported(outcome))

    more = Endpoints(app, "Operations", OPS_PREFIX)

    @more.add(
        "POST",
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
    )
    async def import_node_list(body: NodeListImport) -> Response:
        """As `/nodes/import`, which takes servers on the internet alone."""
        outcome = await nodes.import_rows(
            body.type,
            body.text,
            replace=body.replace,
            group=body.group,
            auto_name=body.auto_node_name,
            start_index=body.auto_node_name_start_index,
            private_servers=body.private_servers,
        )
        return reply(nodes_imported(outcome))

    @endpoints.add(
        "GET",
        "/nodes/delay",
        "Measure a node's delay",
        answer=NodeDelay,
        example={"delay": 87},
    )
    async def measure_node(query: Annotated[DelayQuery, Query()]) -> Response:
        """A node without a delay should be held to be down."""
        try:
            measured = await nodes.delay(query.name, query.url, query.timeout)
        except Missing as error:
            return reply(NodeDelay(delay=-1, error=error.sentence))
        return reply(NodeDelay(delay=measured.delay, error=measured.error or UNSET))

    @endpoints.add(
        "GET",
        "/nodes/delay/all",
        "Measure all nodes' delays",
        answer=NodeDelays,
        example={"data": {"hk-01": 87, "hk-02": -1}},
    )
    async def measure_nodes(query: Annotated[DelayAllQuery, Query()]) -> Response:
        return reply(NodeDelays(data=dict(await nodes.delay_all(query.url, query.timeout))))

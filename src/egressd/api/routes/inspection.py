"""``/ops``: what there is to see: overview, lines, why, nodes as links."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Query
from starlette.responses import Response

from egressd import __version__
from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.routers import Router
from egressd.api.wire.answers import reply
from egressd.api.wire.lines import LineStates, line_state
from egressd.api.wire.operations import (
    ExplainQuery,
    NodeLink,
    NodeLinks,
    ProbeBody,
)
from egressd.service.overview import Overview
from egressd.service.route_explanation import Explanation, question
from egressd.service.route_probe import Proof

_ASKED: Final[dict[str, Any]] = {
    "client": "192.168.8.21",
    "destination": "example.com",
    "port": 443,
    "protocol": "tcp",
}
_BLOCKED: Final = (
    "118 clients of Group_hk are blocked: all of its nodes fail: the node does not answer"
)

router: Final = Router("Operations", OPS_PREFIX)


@router.get(
    "/overview",
    "Everything at a glance",
    answer=Overview,
    example={
        "at": "2026-11-20T22:58:40.125Z",
        "status": "running",
        "is_open": False,
        "uptime_s": 273_600,
        "version": __version__,
        "revision": 812,
        "connections": 1250,
        "tracked": 1409,
        "tracked_max": 262_144,
        "workers": 2,
        "instances": 41,
        "memory": 134_217_728,
        "lease_ms": 3400,
        "counts": {
            "rules": 120,
            "enabled_rules": 118,
            "nodes": 40,
            "lines": 3,
            "online_lines": 2,
            "proxy_services": 1,
            "targets": 1,
            "failing_targets": 1,
        },
        "interfaces": [
            {
                "name": "wan1",
                "ip": "203.0.113.20",
                "is_up": True,
                "role": "wan",
                "received": 91_203_112,
                "sent": 8_120_311,
            }
        ],
        "lines": {
            "l2tp_tokyo": {
                "is_online": False,
                "ip": "",
                "state": "waiting",
                "reason": "the server does not answer",
                "next_attempt": "2026-11-20T22:59:10Z",
                "encryption": "",
            }
        },
        "flows": [
            {
                "target": "Group_hk",
                "kind": "group",
                "clients": 118,
                "egresses": ["wan1"],
                "upload_bps": 812_000,
                "download_bps": 41_300_000,
                "problem": "all of its nodes fail: the node does not answer",
                "cause": "nodes",
                "since": "2026-11-20T22:57:03Z",
            }
        ],
        "unruled": {"target": "REJECT", "is_blocked": True, "reason": "", "seen": 3},
        "blocked": [
            {
                "cause": "nodes",
                "reason": "all of its nodes fail: the node does not answer",
                "clients": 118,
                "targets": ["Group_hk"],
                "since": "2026-11-20T22:57:03Z",
                "text": _BLOCKED,
            }
        ],
        "reached": [{"kind": "connections", "source": "192.168.8.21", "port": 0, "bound": 2048}],
        "refused": {"connections": 8123, "handshakes": 12},
        "timed_backups": {
            "folder": "/mnt/backups",
            "every_h": 24,
            "keep": 14,
            "last_success": "2026-11-20T03:00:04Z",
            "next_run": "2026-11-21T03:00:00Z",
            "problem": "",
        },
        "problems": [_BLOCKED],
    },
    scope="read",
)
async def show_overview(services: ServicesDep) -> Response:
    """Counters are bytes since the interface was made. At most 200 flows: blocked ones first,
    then those with the most clients.
    """
    return reply(await services.overviews.now())


@router.get(
    "/lines",
    "The state of each VPN line",
    answer=LineStates,
    example={
        "data": [
            {
                "name": "l2tp_tokyo",
                "type": "l2tp",
                "is_enabled": True,
                "is_online": False,
                "ip": "",
                "state": "wrong_password",
                "reason": "the server refused the user name or password",
                "next_attempt": "2026-11-20T22:59:10Z",
                "encryption": "",
            }
        ]
    },
    scope="read",
)
async def show_lines(services: ServicesDep) -> Response:
    """Return why each line is not online, and when it is dialled again. This needs no call of
    the data plane, which reports every change.
    """
    return reply(LineStates(data=[line_state(*known) for known in services.lines.list()]))


@router.get(
    "/explain",
    "Explain the path of a client's traffic",
    answer=Explanation,
    example={
        **_ASKED,
        "is_blocked": False,
        "reason": "",
        "problem": "",
        "since": "",
        "doubts": [],
        "rule": {
            "id": 7,
            "ip": "192.168.8.21",
            "comment": "tv",
            "target_node": "Group_hk",
        },
        "other_rules": [],
        "whitelist": {"matches": False, "entry": "", "by": "", "node": "DIRECT"},
        "target": "Group_hk",
        "nodes": ["hk-01"],
        "egresses": ["wan1"],
        "dns": {"server": "1.1.1.1", "further": ["8.8.8.8"], "way": "through the node"},
        "limits": {"rule": "192.168.8.21", "upload_kbps": 0, "download_kbps": 50_000},
        "steps": ["rule 7 (192.168.8.21) covers 192.168.8.21"],
    },
    scope="read",
)
async def explain_traffic(
    query: Annotated[ExplainQuery, Query()], services: ServicesDep
) -> Response:
    asked = question(query.client, query.destination, query.port, query.protocol)
    return reply(await services.why.explain(asked))


@router.post(
    "/probe",
    "Send a request the way a client's traffic goes",
    body=_ASKED,
    answer=Proof,
    example={
        "target": "Group_hk",
        "url": "https://www.cloudflare.com/cdn-cgi/trace",
        "in_force": True,
        "way": "hk-01",
        "exit_ip": "203.0.113.7",
        "delay": 187,
        "error": "",
        "ways": [{"name": "hk-01", "exit_ip": "203.0.113.7", "delay": 187, "error": ""}],
    },
    scope="write",
)
async def probe_traffic(body: ProbeBody, services: ServicesDep) -> Response:
    """The device fetches a page that tells the address it is asked from, with the hops, marks
    and routes of the client's target, and looks up where the kernel sends the client.
    """
    asked = question(body.client, body.destination, body.port, body.protocol)
    return reply(await services.why.prove(asked, body.url))


@router.get(
    "/nodes/links",
    "Nodes as share links",
    answer=NodeLinks,
    example={"data": [{"name": "hk-01", "link": "socks5://203.0.113.7:1080", "lost": []}]},
    scope="write",
)
async def export_nodes(services: ServicesDep) -> Response:
    """They hold the nodes' passwords."""
    links = services.nodes.links()
    return reply(
        NodeLinks(data=[NodeLink(name=n, link=link, lost=list(lost)) for n, link, lost in links])
    )

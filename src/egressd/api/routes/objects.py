"""``/ops``: rules, nodes, lines, proxy services and the whitelist, one by one.

Each has an ETag. A change names the fields that it sets, and the version that it was made against,
if it wants to be refused when another one came between. ``/svc/api/v1`` has the lists.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from egressd.api.dependencies import ServicesDep
from egressd.api.endpoints import OPS_PREFIX
from egressd.api.gate import hides_secrets
from egressd.api.lists import tags_of
from egressd.api.routers import Objects, Router
from egressd.api.routes.lines import resource as v1_lines
from egressd.api.routes.nodes import resource as v1_nodes
from egressd.api.routes.proxy_services import resource as v1_services
from egressd.api.routes.rules import resource as v1_rules
from egressd.api.wire.answers import Answer, SaidId, reply
from egressd.api.wire.fields import IdInPath
from egressd.api.wire.lines import LineCreate, LineRow, line_row
from egressd.api.wire.objects import (
    IfMatch,
    LineChange,
    LineSaved,
    NodeAdd,
    NodeChange,
    NodeObject,
    NodeSaved,
    ProxyServiceChange,
    ProxyServiceSaved,
    RuleChange,
    RuleSaved,
    WhitelistPut,
    WhitelistSaved,
    node_object,
)
from egressd.api.wire.outcomes import done
from egressd.api.wire.proxy_services import (
    ProxyServiceCreate,
    ProxyServiceRow,
    proxy_service_row,
)
from egressd.api.wire.rules import RuleCreate, RuleRow, rule_row
from egressd.api.wire.whitelist import WhitelistAnswer
from egressd.model.drafts import Outcome
from egressd.model.nouns import Line, Node, ProxyService, Rule, Whitelist
from egressd.model.wording import say
from egressd.service.masking import masked_line, masked_node, masked_service
from egressd.service.versions import tag_of

N = TypeVar("N", Rule, Node, Line, ProxyService, Whitelist)

router: Final = Router("Operations", OPS_PREFIX)
rules: Final = Objects(router, "/rules", v1_rules, {"comment": "tv"})
nodes: Final = Objects(
    router,
    "/nodes",
    v1_nodes,
    {"group": "hk"},
    {"change_ip_url": "", "change_ip_via": "", "subscription": 0, "gone_at": ""},
)
lines: Final = Objects(router, "/lines", v1_lines, {"is_enabled": False})
services: Final = Objects(router, "/proxy-services", v1_services, {"is_enabled": False})


def _shown(row: Answer, shown: msgspec.Struct) -> Response:
    """`shown` is what the caller may see of the object: its tag tells nothing of the rest."""
    response = reply(row)
    response.headers["etag"] = tag_of(shown)
    return response


def _saved(
    answer: type[msgspec.Struct], row: Answer, code: str, thing: str, outcome: Outcome[Any]
) -> Response:
    stored = outcome.value
    name = stored.host if isinstance(stored, Rule) else stored.name
    msg = done(say(code, thing=thing, name=name), outcome.notes)
    is_new = code == "created"
    made = answer(**msgspec.structs.asdict(row), msg=msg)
    response = reply(made, 201 if is_new else 200)
    response.headers["etag"] = tag_of(stored)
    return response


def _at(response: Response, path: str, id_: int) -> Response:
    response.headers["location"] = f"{OPS_PREFIX}{path}/{id_}"
    return response


def _deleted(thing: str, name: str, outcome: Outcome[Any]) -> Response:
    msg = done(say("deleted", thing=thing, name=name), outcome.notes)
    return reply(SaidId(msg=msg, id=outcome.value.id))


# --- Rules. ---------------------------------------------------------------------------------


@rules.show(RuleRow)
async def show_rule(rule_id: IdInPath, services: ServicesDep) -> Response:
    rule = services.rules.get(rule_id)
    return _shown(rule_row(rule), rule)


@rules.create(RuleSaved)
async def add_rule(body: RuleCreate, services: ServicesDep) -> Response:
    outcome = await services.rules.create(body.draft())
    response = _saved(RuleSaved, rule_row(outcome.value), "created", "rule", outcome)
    return _at(response, "/rules", outcome.value.id)


@rules.change(RuleSaved)
async def change_rule(
    rule_id: IdInPath, body: RuleChange, services: ServicesDep, if_match: IfMatch = ""
) -> Response:
    outcome = await services.rules.revise(rule_id, body.given(), tags_of(if_match))
    return _saved(RuleSaved, rule_row(outcome.value), "saved", "rule", outcome)


@rules.delete()
async def remove_rule(rule_id: IdInPath, services: ServicesDep, if_match: IfMatch = "") -> Response:
    outcome = await services.rules.delete(rule_id, tags_of(if_match))
    return _deleted("rule", outcome.value.host, outcome)


# --- Nodes. ---------------------------------------------------------------------------------


@nodes.show(NodeObject)
async def show_node(request: Request, node_id: IdInPath, services: ServicesDep) -> Response:
    """Credentials are masked for a token of scope `read`."""
    node = services.nodes.get(node_id)
    shown = masked_node(node) if hides_secrets(request.scope) else node
    return _shown(node_object(shown), shown)


@nodes.create(NodeSaved)
async def add_node(body: NodeAdd, services: ServicesDep) -> Response:
    outcome = await services.nodes.create(body.draft(), body.change_ip())
    response = _saved(NodeSaved, node_object(outcome.value), "created", "node", outcome)
    return _at(response, "/nodes", outcome.value.id)


@nodes.change(NodeSaved)
async def change_node(
    node_id: IdInPath, body: NodeChange, services: ServicesDep, if_match: IfMatch = ""
) -> Response:
    """Another name renames it, and moves what refers to it."""
    outcome = await services.nodes.revise(node_id, body.given(), tags_of(if_match))
    return _saved(NodeSaved, node_object(outcome.value), "saved", "node", outcome)


@nodes.delete()
async def remove_node(node_id: IdInPath, services: ServicesDep, if_match: IfMatch = "") -> Response:
    """Rules that name it block their clients until it exists again."""
    outcome = await services.nodes.delete(node_id, tags_of(if_match))
    return _deleted("node", outcome.value.name, outcome)


# --- Lines. ---------------------------------------------------------------------------------


@lines.show(LineRow)
async def show_line(request: Request, line_id: IdInPath, services: ServicesDep) -> Response:
    """Password and secret are masked for a token of scope `read`. The ETag is that of what is
    configured, not of `is_online`.
    """
    line, status = services.lines.get(line_id)
    shown = masked_line(line) if hides_secrets(request.scope) else line
    return _shown(line_row(shown, status), shown)


@lines.create(LineSaved)
async def add_line(body: LineCreate, services: ServicesDep) -> Response:
    outcome = await services.lines.create(body.draft())
    row = line_row(*services.lines.get(outcome.value.id))
    response = _saved(LineSaved, row, "created", "line", outcome)
    return _at(response, "/lines", outcome.value.id)


@lines.change(LineSaved)
async def change_line(
    line_id: IdInPath, body: LineChange, services: ServicesDep, if_match: IfMatch = ""
) -> Response:
    """Another name renames it, and moves what refers to it."""
    outcome = await services.lines.revise(line_id, body.given(), tags_of(if_match))
    row = line_row(outcome.value, services.lines.status(outcome.value))
    return _saved(LineSaved, row, "saved", "line", outcome)


@lines.delete()
async def remove_line(line_id: IdInPath, services: ServicesDep, if_match: IfMatch = "") -> Response:
    """Rules that name it block their clients until it exists again."""
    outcome = await services.lines.delete(line_id, tags_of(if_match))
    return _deleted("line", outcome.value.name, outcome)


# --- Proxy services. ------------------------------------------------------------------------


@services.show(ProxyServiceRow)
async def show_proxy_service(
    request: Request, service_id: IdInPath, services: ServicesDep
) -> Response:
    """The password is masked for a token of scope `read`."""
    found = services.proxy_services.get(service_id)
    shown = masked_service(found) if hides_secrets(request.scope) else found
    return _shown(proxy_service_row(shown), shown)


@services.create(ProxyServiceSaved)
async def add_proxy_service(body: ProxyServiceCreate, services: ServicesDep) -> Response:
    outcome = await services.proxy_services.create(body.draft())
    row = proxy_service_row(outcome.value)
    response = _saved(ProxyServiceSaved, row, "created", "proxy service", outcome)
    return _at(response, "/proxy-services", outcome.value.id)


@services.change(ProxyServiceSaved)
async def change_proxy_service(
    service_id: IdInPath, body: ProxyServiceChange, services: ServicesDep, if_match: IfMatch = ""
) -> Response:
    outcome = await services.proxy_services.revise(service_id, body.given(), tags_of(if_match))
    row = proxy_service_row(outcome.value)
    return _saved(ProxyServiceSaved, row, "saved", "proxy service", outcome)


@services.delete()
async def remove_proxy_service(
    service_id: IdInPath, services: ServicesDep, if_match: IfMatch = ""
) -> Response:
    outcome = await services.proxy_services.delete(service_id, tags_of(if_match))
    return _deleted("proxy service", outcome.value.name, outcome)


# --- The whitelist. -------------------------------------------------------------------------

_WHITELIST: Final = {"domains": "example.com", "ips": "198.51.100.0/24", "node": "DIRECT"}


@router.get(
    "/whitelist",
    "Show the whitelist with its ETag",
    answer=WhitelistAnswer,
    example=_WHITELIST,
    scope="read",
    is_licensed=True,
)
async def show_whitelist_version(services: ServicesDep) -> Response:
    saved = services.whitelist.get()
    return _shown(WhitelistAnswer(domains=saved.domains, ips=saved.ips, node=saved.node), saved)


@router.put(
    "/whitelist",
    "Replace the whitelist, if it is still what was read",
    body=_WHITELIST,
    answer=WhitelistSaved,
    example={**_WHITELIST, "msg": "whitelist saved"},
    scope="write",
    is_conditional=True,
    is_licensed=True,
)
async def put_whitelist(
    body: WhitelistPut, services: ServicesDep, if_match: IfMatch = ""
) -> Response:
    outcome = await services.whitelist.put(body.domains, body.ips, body.node, tags_of(if_match))
    saved = outcome.value
    row = WhitelistAnswer(domains=saved.domains, ips=saved.ips, node=saved.node)
    msg = done(say("whitelist-saved"), outcome.notes)
    return _shown(WhitelistSaved(**msgspec.structs.asdict(row), msg=msg), saved)

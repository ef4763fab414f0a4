"""netd accepts every plan that the api makes of valid data; the api leaves all other data out."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Invalid
from egressd.model.messages import Request, SetPlan
from egressd.model.names import has_control_characters
from egressd.model.nouns import Line, Node, ProxyService, Rule
from egressd.model.plan import Plan, difference
from egressd.netd.ipc.server import read_request
from egressd.netd.reconciler import validation
from egressd.planner.compile import compile_plan
from egressd.planner.outbounds import build
from egressd.service.lines import status_of
from tests.support.nodes.configs import ACCEPTED, node
from tests.support.random_edits import LOCALLY, RESOLVERS, Author, steps

text = st.text(max_size=24).filter(lambda text: not has_control_characters(text))
awkward = text | st.text(alphabet="%;=\\/?#[]{}:@,*\"' aé0F", max_size=12)


def taken(plan: Plan) -> Plan:
    """Return the plan as netd has it. Raises Invalid if it is refused."""
    request = msgspec.msgpack.encode(Request(number=1, body=SetPlan(plan)))
    body = msgspec.msgpack.decode(request)["body"]
    asked = read_request(msgspec.msgpack.encode(body))
    assert isinstance(asked, SetPlan)
    validation.check(difference(Plan(), asked.plan), Plan())
    return asked.plan


@settings(max_examples=200)
@given(
    st.lists(st.lists(steps, min_size=1, max_size=4), max_size=4),
    st.sampled_from((RESOLVERS, LOCALLY)),
)
def test_every_compiled_plan_is_accepted_unchanged(
    changes: list[list[Any]], resolvers: Any
) -> None:
    author = Author(DesiredState())
    for change in changes:
        for verb, positional, keyword in change:
            getattr(author, verb)(*positional, **keyword)
    plan = compile_plan(author.state, resolvers)
    assert taken(plan) == plan


def of_node(made: Node) -> DesiredState:
    """Return a rule that sends a client to that node."""
    rule = Rule(id=1, ip="10.0.0.1/32", target_node=made.name)
    return DesiredState().with_edits([Edit("nodes", 1, made), Edit("rules", 1, rule)], 1)


@pytest.mark.parametrize(("protocol", "config"), ACCEPTED, ids=lambda value: str(value)[:60])
def test_every_kind_of_node_is_accepted(protocol: str, config: dict[str, Any]) -> None:
    plan = compile_plan(of_node(node(protocol, config)), RESOLVERS)
    assert plan.instances.keys() == {"node:1"}
    assert taken(plan) == plan


@settings(max_examples=200)
@given(
    accepted=st.sampled_from(ACCEPTED),
    field=st.sampled_from(("password", "username", "sni", "obfs-password", "alpn")),
    value=awkward,
    path=awkward,
    host=awkward,
)
def test_a_valid_node_makes_no_plan_unacceptable(
    accepted: tuple[str, dict[str, Any]], field: str, value: str, path: str, host: str
) -> None:
    protocol, config = accepted
    given_value: Any = [value] if field == "alpn" else value
    opts = {"path": path, "headers": {"Host": host, "X-A": value}}
    made = node(
        protocol,
        {
            **config,
            field: given_value,
            "ws-opts": opts,
            "grpc-opts": {"grpc-service-name": path},
            "h2-opts": {"host": [host], "path": path},
        },
    )
    with suppress(Invalid):
        build(made)
        plan = compile_plan(of_node(made), RESOLVERS)
        assert taken(plan) == plan


def line(**fields: Any) -> Line:
    given_fields = {"server": "vpn.test", "port": 1701, "username": "u", "password": "p"}
    return Line(id=1, type="l2tp", name="l2tp_1", **{**given_fields, **fields})


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"password": "a\nplugin /tmp/x"}, "password must not contain control characters"),
        ({"server": "$(reboot)"}, "server must be"),
        ({"username": "@/etc/shadow"}, "username must not begin with @/"),
        ({"port": 0}, "port must be"),
    ],
)
def test_an_invalid_stored_line_is_omitted_with_its_reason(
    fields: dict[str, Any], why: str
) -> None:
    stored = line(**fields)
    rule = Rule(id=1, ip="10.0.0.1/32", target_node="Interface:l2tp_1")
    edits = [
        Edit("lines", 1, stored),
        Edit("lines", 2, msgspec.structs.replace(line(), id=2, name="l2tp_2")),
        Edit("rules", 1, rule),
        Edit("numbers", "Interface:l2tp_1", 1),
    ]
    plan = compile_plan(DesiredState().with_edits(edits, 1), RESOLVERS)
    assert plan.lines.keys() == {"l2tp_2"}
    assert taken(plan) == plan
    told = status_of(stored, {})
    assert (told.is_online, told.state) == (False, "invalid")
    assert why in told.reason


@pytest.mark.parametrize("fields", [{"port": 22}, {"port": 20_000}, {"password": "a\nb"}])
def test_an_invalid_stored_proxy_service_is_omitted(fields: dict[str, Any]) -> None:
    given_fields: dict[str, Any] = {"port": 1080, "username": "u", "password": "p"}
    services = [
        ProxyService(id=1, name="a", outbound_interface="wan1", **{**given_fields, **fields}),
        ProxyService(id=2, name="b", outbound_interface="wan1", **given_fields),
    ]
    edits = [Edit("services", each.id, each) for each in services]
    state = DesiredState().with_edits([*edits, Edit("numbers", "Interface:wan1", 1)], 1)
    plan = compile_plan(state, RESOLVERS)
    assert plan.instances.keys() == {"service:2"}
    assert taken(plan) == plan


def test_an_invalid_stored_node_blocks_only_its_own_clients() -> None:
    config = json.dumps({"server": "a.test", "port": 1, "username": "u\nv"})
    made = Node(id=1, name="n", protocol="socks5", config_json=config, group="", created_at="")
    plan = compile_plan(of_node(made), RESOLVERS)
    assert plan.instances == {}
    assert taken(plan) == plan

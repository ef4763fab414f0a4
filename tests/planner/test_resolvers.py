"""The choice of resolvers, if a resolver can be reached by one interface only."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv4Network

import msgspec
import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.device import Resolvers
from egressd.model.names import INTERFACE_PREFIX, parse_target
from egressd.model.nouns import Line, Node, ProxyService, Rule, Settings, Whitelist
from egressd.planner.compile import compile_plan
from egressd.planner.documents import document_of, probe_document
from egressd.planner.probes import target_paths
from egressd.planner.resolvers import usable
from egressd.planner.topology import Topology

RESOLVERS = Resolvers(
    device=("192.168.1.1", "192.168.2.1"),
    domestic=("192.0.2.54",),
    outbound=("192.0.2.55",),
    home=("192.0.2.56",),
    near=(("192.168.1.1", "wan1"), ("192.168.2.1", "wan2")),
)
INTERFACES = ("wan1", "wan2", "wan3", "l2tp_1")
ASKED = {
    "wan1": "192.168.1.1",
    "wan2": "192.168.2.1",
    "wan3": "192.0.2.54",
    "l2tp_1": "192.0.2.54",
}


def state() -> DesiredState:
    """Return a state with a rule, a node and a proxy service by each interface, and a whitelist of
    domains.
    """
    targets = [
        *(INTERFACE_PREFIX + name for name in INTERFACES),
        *map(node_name, (*INTERFACES, "")),
    ]
    edits = [
        Edit("rules", key, Rule(id=key, ip=f"10.0.0.{key}/32", target_node=target))
        for key, target in enumerate(targets, 1)
    ]
    edits += [Edit("nodes", key, node(key, name)) for key, name in enumerate((*INTERFACES, ""), 1)]
    for key, name in enumerate(INTERFACES, 1):
        service = ProxyService(id=key, name=name, port=8000 + key, outbound_interface=name)
        edits += [Edit("services", key, service), Edit("numbers", INTERFACE_PREFIX + name, key)]
    line = Line(
        id=1, type="l2tp", name="l2tp_1", server="192.0.2.9", port=1701, username="u", password="p"
    )
    edits.append(Edit("lines", 1, line))
    edits.append(Edit("whitelist", 0, Whitelist(domains="example.com", node="DIRECT")))
    return DesiredState().with_edits(edits, 1)


def node(key: int, interface: str) -> Node:
    """Return a node that is dialled by that interface, or by the machine's own choice."""
    config: dict[str, object] = {"server": "node.example", "port": 1080}
    if interface:
        config["interface-name"] = interface
    return Node(
        id=key,
        name=node_name(interface),
        protocol="socks5",
        config_json=json.dumps(config),
        group="",
        created_at="",
    )


def node_name(interface: str) -> str:
    return f"by-{interface}"


def device_server(document: str) -> str:
    """Return the resolver that an instance asks by default."""
    tag = json.loads(document)["route"]["default_domain_resolver"]["server"]
    return device_servers(document)[tag]


def device_servers(document: str) -> dict[str, str]:
    """Return the resolvers that an instance asks for names of nodes' servers, by tag."""
    servers: list[dict[str, str]] = json.loads(document)["dns"]["servers"]
    return {s["tag"]: s["server"] for s in servers if s["tag"].startswith("device")}


def test_the_device_itself_uses_its_first_resolver() -> None:
    assert RESOLVERS.reached_by("") == "192.168.1.1"
    assert compile_plan(state(), RESOLVERS).policy.resolvers == RESOLVERS.device


def test_clients_of_an_interface_use_a_resolver_reached_by_it() -> None:
    egresses = compile_plan(state(), RESOLVERS).egresses
    told = {name: egress.resolvers or egress.default_resolvers for name, egress in egresses.items()}
    assert told == {name: (server,) for name, server in ASKED.items()}
    assert not egresses["l2tp_1"].resolvers  # the resolvers of its peer come first


@pytest.mark.parametrize("kind", ["sniff", "node", "service"])
def test_instances_use_a_resolver_reached_by_their_egress(kind: str) -> None:
    plan = compile_plan(state(), RESOLVERS)
    told = {
        name: device_server(document_of(plan.instances[f"{kind}:{number}"].work))
        for number, name in enumerate(INTERFACES, 1)
    }
    assert told == ASKED


def test_a_node_without_an_interface_is_resolved_by_the_first_resolver() -> None:
    instance = compile_plan(state(), RESOLVERS).instances[f"node:{len(INTERFACES) + 1}"]
    assert device_server(document_of(instance.work)) == "192.168.1.1"


def test_each_node_of_a_group_is_resolved_by_its_own_egress() -> None:
    group = [
        Edit("nodes", key, msgspec.structs.replace(node(key, name), name=f"n{key}", group="g"))
        for key, name in enumerate((*INTERFACES, "", "wan1"), 1)
    ]
    unmanaged = Edit("settings", 0, Settings(unmanaged="Group_g"))
    plan = compile_plan(state().with_edits([*group, unmanaged], 2), RESOLVERS)
    config = json.loads(document_of(plan.instances["default:0"].work))
    servers = {server["tag"]: server for server in config["dns"]["servers"]}
    nodes = [outbound for outbound in config["outbounds"] if outbound["type"] == "socks"]
    asked = [servers[outbound["domain_resolver"]["server"]] for outbound in nodes]
    assert [server["server"] for server in asked] == [*ASKED.values(), "192.168.1.1", ASKED["wan1"]]
    marks = [server["routing_mark"] for server in asked]
    assert marks == [outbound["routing_mark"] for outbound in nodes]
    assert len(set(marks)) == len(INTERFACES) + 1


@pytest.mark.parametrize("name", INTERFACES)
def test_a_measurement_uses_the_resolvers_of_clients(name: str) -> None:
    target = INTERFACE_PREFIX + name
    paths = target_paths(state(), parse_target(target), RESOLVERS)
    assert device_server(probe_document(paths[target])) == ASKED[name]


def test_clients_of_a_node_have_three_resolvers_in_turn() -> None:
    listed = tuple(f"192.0.2.{n}" for n in range(1, 6))
    resolvers = msgspec.structs.replace(RESOLVERS, outbound=listed)
    dns = json.loads(document_of(compile_plan(state(), resolvers).instances["node:1"].work))["dns"]
    servers = {server["tag"]: server["server"] for server in dns["servers"]}
    asked = [r for r in dns["rules"] if r["action"] == "evaluate" and "query_type" not in r]
    in_turn = [*(servers[rule["server"]] for rule in asked), servers[dns["final"]]]
    assert in_turn == list(listed[:3])
    # Clients wait for 5 s: resolv.conf(5).
    assert [rule["timeout"] for rule in asked] == ["1500ms", "1500ms"]
    answers = {rule["response_rcode"] for rule in dns["rules"] if "response_rcode" in rule}
    assert answers == {"NOERROR", "NXDOMAIN"}


def test_a_single_resolver_has_no_timeout() -> None:
    dns = json.loads(document_of(compile_plan(state(), RESOLVERS).instances["node:1"].work))["dns"]
    own = dns["servers"][0]["tag"]
    assert dns["final"] == own
    assert [rule["server"] for rule in dns["rules"] if "server" in rule] == [own]
    assert not any("timeout" in rule for rule in dns["rules"])


def test_a_resolver_with_an_unknown_interface_is_reached_by_every_one() -> None:
    known = Resolvers(device=("192.0.2.53",), domestic=("192.0.2.54",), outbound=("",), home=("",))
    assert {known.reached_by(name) for name in ("", *INTERFACES)} == {"192.0.2.53"}


def test_unusable_peer_resolvers_are_omitted() -> None:
    topology = Topology(
        lan_networks=(("lan0", IPv4Network("10.77.0.0/24")),),
        router_addresses=(IPv4Address("10.77.0.1"), IPv4Address("10.1.0.2")),
    )
    servers = ("10.77.0.12", "10.1.0.2", "127.0.0.53", "0.0.0.0", "224.0.0.251", "1.2.3")
    peer_dns = {
        "l2tp_1": servers,
        "l2tp_2": (servers[0], "192.168.101.1"),
        "l2tp_3": ("9.9.9.9", "10.1.0.1"),
    }
    assert usable(peer_dns, topology) == {
        "l2tp_2": ("192.168.101.1",),
        "l2tp_3": ("9.9.9.9", "10.1.0.1"),
    }

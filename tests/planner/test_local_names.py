"""Local names: the domains, their resolvers, and the instances that ask them."""

from __future__ import annotations

import json
from ipaddress import IPv4Address, IPv4Network
from typing import Any

import msgspec
import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.device import LocalZone, Resolvers
from egressd.model.names import INTERFACE_PREFIX
from egressd.model.nouns import Line, Node, ProxyService, Rule, Settings, Whitelist
from egressd.model.plan import Plan
from egressd.planner import local_names, nft
from egressd.planner.compile import compile_plan
from egressd.planner.documents import document_of
from egressd.planner.registry import (
    MARK_ASKED_DIRECTLY,
    MARK_ASKED_LOCALLY,
    MARK_DIRECT,
    RESOLVER_IN_USE,
    asker_mark,
    line_mark,
)
from egressd.planner.topology import Topology

ROUTER, CORP, SPARE = "10.0.0.1", "10.0.1.5", "10.0.1.6"
LAN = LocalZone(domain="lan", servers=(ROUTER,))
ZONES = (LAN, LocalZone(domain="corp.lan", servers=(CORP, SPARE)))
RESOLVERS = Resolvers(
    device=("192.0.2.53",),
    domestic=("192.0.2.54",),
    outbound=("192.0.2.55",),
    home=("192.0.2.56",),
    local=ZONES,
)
LINE = Line(
    id=1,
    type="l2tp",
    name="l2tp_1",
    server="192.0.2.9",
    port=1701,
    username="u",
    password="p",
    dns_profile="domestic",
)


def state(unmanaged: str = "REJECT", domains: str = "") -> DesiredState:
    """Return a state with a rule for each kind of target, and a service."""
    targets = ("DIRECT", "REJECT", "tokyo", "Interface:wan1", "Interface:l2tp_1")
    config = json.dumps({"server": "192.0.2.1", "port": 1080})
    node = Node(id=1, name="tokyo", protocol="socks5", config_json=config, group="", created_at="")
    service = ProxyService(id=1, name="s", port=8001, outbound_interface="wan1")
    edits = [
        *(Edit("numbers", INTERFACE_PREFIX + n, k) for k, n in ((1, "wan1"), (2, "l2tp_1"))),
        Edit("nodes", 1, node),
        Edit("lines", 1, LINE),
        Edit("services", 1, service),
        Edit("settings", 0, Settings(unmanaged=unmanaged)),
        Edit("whitelist", 0, Whitelist(domains=domains, node="DIRECT")),
    ]
    edits += [
        Edit("rules", key, Rule(id=key, ip=f"10.0.0.{key}/32", target_node=target))
        for key, target in enumerate(targets, 11)
    ]
    return DesiredState().with_edits(edits, 1)


def plan(**changes: str) -> Plan:
    return compile_plan(state(**changes), RESOLVERS)


def dns_of(found: Plan, key: str) -> dict[str, Any]:
    dns: dict[str, Any] = json.loads(document_of(found.instances[key].work))["dns"]
    return dns


def asks_locally(found: Plan) -> set[str]:
    """Return the keys of the instances that ask local resolvers."""
    return {
        key
        for key in found.instances
        if any(s["tag"].startswith("local:") for s in dns_of(found, key)["servers"])
    }


@pytest.mark.parametrize(
    ("name", "domain"),
    [
        ("lan", "lan"),
        ("a.b.lan", "lan"),
        ("corp.lan", "corp.lan"),
        ("a.corp.lan", "corp.lan"),
        ("notcorp.lan", "lan"),
        ("notlan", None),
        ("lan.example", None),
    ],
)
def test_the_narrowest_zone_takes_precedence(name: str, domain: str | None) -> None:
    zone = local_names.zone_of(name, ZONES)
    assert (zone.domain if zone else None) == domain


@pytest.mark.parametrize(
    ("network", "domains", "count"),
    [
        ("10.77.0.0/24", ["0.77.10.in-addr.arpa"], 1),
        ("10.0.0.0/8", ["10.in-addr.arpa"], 1),
        ("192.168.4.0/23", ["4.168.192.in-addr.arpa", "5.168.192.in-addr.arpa"], 2),
        ("192.0.2.8/31", ["8.2.0.192.in-addr.arpa", "9.2.0.192.in-addr.arpa"], 2),
        ("192.0.2.0/25", ["0.2.0.192.in-addr.arpa"], 128),
        ("172.16.0.0/12", ["16.172.in-addr.arpa"], 16),
        ("10.0.0.7/32", ["7.0.0.10.in-addr.arpa"], 1),
    ],
)
def test_reverse_zones_cover_exactly_the_addresses_of_a_network(
    network: str, domains: list[str], count: int
) -> None:
    found = list(local_names.reverse_domains(IPv4Network(network)))
    assert found[: len(domains)] == domains
    assert len(found) == count


def test_a_reverse_zone_uses_the_resolvers_in_that_network() -> None:
    networks = [IPv4Network(n) for n in ("10.0.1.0/24", "10.0.0.0/24", "192.168.7.0/24")]
    found = local_names.with_reverse_zones(ZONES, networks)
    assert found[: len(ZONES)] == ZONES
    assert {zone.domain: zone.servers for zone in found[len(ZONES) :]} == {
        "1.0.10.in-addr.arpa": (CORP, SPARE),
        "0.0.10.in-addr.arpa": (ROUTER,),
        "7.168.192.in-addr.arpa": (ROUTER,),
    }
    own = (*ZONES, LocalZone(domain="10.in-addr.arpa", servers=(SPARE,)))
    assert local_names.with_reverse_zones(own, networks[:2]) == own, "the operator's own"
    assert local_names.with_reverse_zones((), networks) == ()


def test_narrow_zones_come_first_and_servers_in_order() -> None:
    rules = local_names.dns_rules(ZONES)
    routes = [(r["domain_suffix"], r["server"]) for r in rules if r["action"] == "route"]
    assert routes == [(["corp.lan"], f"local:{SPARE}"), (["lan"], f"local:{ROUTER}")]
    evaluated = [(r["server"], r["timeout"]) for r in rules if r["action"] == "evaluate"]
    assert evaluated == [(f"local:{CORP}", "1500ms")]
    assert all("domain_suffix" in rule for rule in rules), "no other question is concerned"
    # Their own questions for their own names do not come back to them.
    assert rules[0]["source_ip_cidr"] == [CORP, SPARE]
    assert rules[0]["action"] == "predefined"


def test_each_target_but_reject_has_local_names_and_the_unruled_do_not() -> None:
    found = plan(unmanaged="tokyo")
    assert asks_locally(found) == {"dns:0", "dns:1", "dns:2", "node:1"}
    marks = {
        server["routing_mark"]
        for key in asks_locally(found)
        for server in dns_of(found, key)["servers"]
        if server["tag"].startswith("local:")
    }
    assert marks == {MARK_ASKED_LOCALLY}


def test_without_local_names_the_kernel_redirects_dns_itself() -> None:
    found = compile_plan(state(), msgspec.structs.replace(RESOLVERS, local=()))
    assert not asks_locally(found)
    assert not any(key.startswith("dns:") for key in found.instances)
    elements = nft.elements(found, Topology(), {})
    assert elements["askers"] == {}
    assert not any(str(RESOLVER_IN_USE) in key for key in elements["substitutes"])


def test_other_names_are_resolved_by_the_targets_own_egress() -> None:
    found = plan()
    ways = {"dns:0": MARK_DIRECT, "dns:1": 0x2000_0001, "dns:2": MARK_ASKED_DIRECTLY}
    for key, mark in ways.items():
        dns = dns_of(found, key)
        final = next(s for s in dns["servers"] if s["tag"] == dns["final"])
        assert (final["server"], final["routing_mark"]) == (str(RESOLVER_IN_USE), mark)


def test_the_kernel_redirects_dns_to_instances_and_names_the_resolver() -> None:
    found = plan()
    topology = Topology(lans=("lan0",), wans=("wan1",), routable=("wan1",))
    elements = nft.elements(found, topology, {})
    assert elements["askers"] == {
        "0x30000000": f"{asker_mark(0):#x}",
        "0x20000001": f"{asker_mark(1):#x}",
    }, "a line that is down asks nobody"
    assert f"{line_mark(2):#x}" not in elements["askers"]
    assert elements["substitutes"] == {
        f"{mark} . {RESOLVER_IN_USE}": server for mark, server in elements["dns4"].items()
    }
    assert {ROUTER, CORP, SPARE} <= elements["resolvers"].keys()


def test_refused_clients_resolve_a_listed_local_name_locally() -> None:
    found = plan(domains="listed.lan")
    assert "sniff:50331648" in asks_locally(found)
    first, *rest = dns_of(found, "sniff:50331648")["rules"]
    assert (first["action"], first["invert"]) == ("reject", True)
    assert rest[: len(local_names.dns_rules(ZONES))] == list(local_names.dns_rules(ZONES))


def test_a_resolver_on_the_router_accepts_the_marks_that_use_it() -> None:
    resolvers = msgspec.structs.replace(RESOLVERS, device=(ROUTER,), local=())
    topology = Topology(
        lans=("lan0",),
        wans=("wan1",),
        routable=("wan1",),
        router_addresses=(IPv4Address(ROUTER),),
    )
    elements = nft.elements(compile_plan(state(), resolvers), topology, {})
    assert elements["here"].keys() == {f"0x30000000 . {ROUTER}", f"0x20000001 . {ROUTER}"}

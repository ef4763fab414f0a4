"""Which resolver each way out has."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.device import Resolvers
from egressd.model.names import parse_target
from egressd.model.nouns import Node, ProxyService, Rule
from egressd.planner.compile import compile_plan
from egressd.planner.probes import target_documents

PUBLIC = Resolvers(
    device=("192.0.2.53",), domestic=("192.0.2.54",), outbound=("192.0.2.55",), home=("192.0.2.56",)
)
IN_LAN = msgspec.structs.replace(PUBLIC, device=("192.168.7.2",))


@pytest.mark.parametrize(
    ("device", "asked"),
    [
        (["192.0.2.53", "192.0.2.52"], "192.0.2.53"),
        (["10.0.0.1"], "192.0.2.55"),
        (["172.31.0.1", "192.168.1.1", "100.100.100.100", "169.254.1.1"], "192.0.2.55"),
        (["192.168.1.1", "192.0.2.53"], "192.0.2.53"),
        (["172.32.0.1"], "172.32.0.1"),
        ([], "192.0.2.55"),
    ],
)
def test_a_resolver_that_is_nearby_is_not_asked_by_an_interface(
    device: list[str], asked: str
) -> None:
    assert msgspec.structs.replace(PUBLIC, device=tuple(device)).by_interface == asked


def state() -> DesiredState:
    """A rule to DIRECT, wan2, and two nodes: the second leaves by wan2. A proxy service on wan2."""
    entry = {"server": "node.example", "port": 1080}
    configs = {1: entry, 2: {**entry, "interface-name": "wan2"}}
    nodes = {
        key: Node(
            id=key,
            name=f"node{key}",
            protocol="socks5",
            config_json=json.dumps(config),
            group="",
            created_at="",
        )
        for key, config in configs.items()
    }
    edits = [Edit("nodes", key, node) for key, node in nodes.items()]
    edits.append(Edit("numbers", "Interface:wan2", 1))
    edits += [
        Edit("rules", key, Rule(id=key, ip=f"10.0.0.{key}/32", target_node=target))
        for key, target in enumerate(("DIRECT", "Interface:wan2", "node1", "node2"), start=1)
    ]
    service = ProxyService(id=1, name="s", port=18_080, outbound_interface="wan2")
    edits.append(Edit("services", 1, service))
    return DesiredState().with_edits(edits, 1)


def device_server(config: str) -> Any:
    """Who is asked for the names that an engine document itself needs."""
    servers = json.loads(config)["dns"]["servers"]
    return next(server["server"] for server in servers if server["tag"] == "device")


@pytest.mark.parametrize(("resolvers", "by_wan2"), [(PUBLIC, "192.0.2.53"), (IN_LAN, "192.0.2.55")])
def test_each_way_out_has_a_resolver_that_it_reaches(resolvers: Resolvers, by_wan2: str) -> None:
    # Found by an audit: clients on a WAN had no DNS while the device's resolver was in the LAN.
    wanted = state()
    plan = compile_plan(wanted, resolvers)
    assert plan.floor.resolver == resolvers.device[0]
    assert plan.egresses["wan2"].resolver == by_wan2
    asked = {key: device_server(instance.config) for key, instance in plan.instances.items()}
    assert asked == {"node:1": resolvers.device[0], "node:2": by_wan2, "service:1": by_wan2}
    for target, server in (("Interface:wan2", by_wan2), ("DIRECT", resolvers.device[0])):
        (document,) = target_documents(wanted, parse_target(target), resolvers).values()
        assert device_server(document) == server

"""Local networks: found, named, and with clients in them."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import pytest
from msgspec.structs import replace

from egressd.model.device import InterfaceRoles
from egressd.model.facts import Facts, Interface, Route
from egressd.model.plan import Change, GlobalPolicy, Patch, Plan
from egressd.planner import local
from egressd.planner.nft import elements
from egressd.planner.registry import MARK_DIRECT, MARK_KIND_MASK
from egressd.planner.routing import desired
from egressd.planner.topology import Topology, discover, overlaps, recalled

ROLES = InterfaceRoles(lan=("lan0",), wan=("wan1",))


def interface(name: str, *addresses: str, kind: str = "") -> Interface:
    return Interface(
        name=name, index=2, kind=kind, is_up=True, addresses=tuple(map(IPv4Interface, addresses))
    )


def facts(*more: Interface, uplinks: frozenset[str] = frozenset()) -> Facts:
    every = (interface("lan0", "10.77.0.1/24"), interface("wan1", "192.0.2.2/30"), *more)
    return Facts(
        interfaces={i.name: i for i in every},
        routes=(
            Route(
                destination=IPv4Network("0.0.0.0/0"),
                interface="wan1",
                gateway=IPv4Address("192.0.2.1"),
            ),
        ),
        uplinks=uplinks,
    )


DOCKER = interface("docker0", "172.17.0.1/16", kind="bridge")
WITH_DOCKER = discover(facts(DOCKER), ROLES)


@pytest.mark.parametrize(
    "name",
    [
        "docker0", "docker_gwbridge", "br-0123456789ab", "virbr0", "lxcbr0", "lxdbr0", "incusbr0",
        "cni0", "cni-podman0", "podman1",
    ],
)  # fmt: skip
def test_networks_of_containers_and_virtual_machines_are_found(name: str) -> None:
    found = discover(facts(interface(name, "10.88.0.1/16")), InterfaceRoles())
    assert found.local == (name,)
    assert found.lans == ("lan0",)
    assert found.local_networks == ((name, IPv4Network("10.88.0.0/16")),)


@pytest.mark.parametrize("name", ["br-lan", "eth1", "docker", "veth0123456", "br-0123456789abc"])
def test_other_networks_are_not_local(name: str) -> None:
    assert discover(facts(interface(name, "10.88.0.1/16")), ROLES).local == ()


def test_wireguard_is_local_unless_it_is_a_default_route_or_has_a_role() -> None:
    server = interface("wg0", "10.200.0.1/24", kind="wireguard")
    assert discover(facts(server), ROLES).local == ("wg0",)
    assert discover(facts(server, uplinks=frozenset({"wg0"})), ROLES).local == ()
    assert discover(facts(server), InterfaceRoles(lan=("wg0",), wan=("wan1",))).local == ()
    assert discover(facts(server), InterfaceRoles(lan=("lan0",), wan=("wg0",))).local == ()


def test_a_configured_local_network_is_no_lan() -> None:
    roles = InterfaceRoles(local=("iot0",))
    found = discover(facts(interface("iot0", "192.168.9.1/24")), roles)
    assert found.local == ("iot0",)
    assert found.lans == ("lan0",)


def test_a_network_shared_with_a_lan_belongs_to_the_lan() -> None:
    found = discover(facts(interface("docker0", "10.77.0.1/25")), ROLES)
    assert found.local_networks == ()


def test_a_local_network_is_no_lan_to_the_next_netd() -> None:
    made = elements(Plan(), WITH_DOCKER, {})
    again = recalled(made["lansrc"], {}, (), made["localif"])
    assert again.lans == ("lan0",)


def plan(*, hosts: tuple[str, ...] = (), nets: tuple[str, ...] = ()) -> Plan:
    return Plan(hosts=dict.fromkeys(hosts, MARK_DIRECT), nets=dict.fromkeys(nets, MARK_DIRECT))


CLIENT = "172.17.0.2"
NOTHING: Patch[int] = Patch()


def test_a_local_network_has_clients_if_a_rule_covers_an_address_of_it() -> None:
    assert local.ruled(plan(hosts=("10.77.0.5", CLIENT)), WITH_DOCKER) == ("docker0",)
    assert local.ruled(plan(hosts=("10.77.0.5",)), WITH_DOCKER) == ()
    assert local.ruled(plan(nets=("172.16.0.0-172.17.0.7",)), WITH_DOCKER) == ("docker0",)
    assert local.ruled(plan(nets=("172.18.0.0-172.18.0.7",)), WITH_DOCKER) == ()
    assert local.ruled(plan(hosts=(CLIENT,)), Topology()) == ()


def test_a_change_touches_a_local_network_if_an_address_may_be_in_it() -> None:
    def touches(hosts: Patch[int] = NOTHING, nets: Patch[int] = NOTHING) -> bool:
        return local.touches(Change(base=1, revision=2, hosts=hosts, nets=nets), WITH_DOCKER)

    assert touches(Patch(put={CLIENT: MARK_DIRECT}))
    assert touches(Patch(drop=(CLIENT,)))
    assert touches(nets=Patch(drop=("10.0.0.0-10.0.0.7",)))
    assert not touches(Patch(put={"10.77.0.5": MARK_DIRECT}))


def test_unmarked_packets_are_denied_only_in_local_networks_with_clients() -> None:
    def denied(ruled: tuple[str, ...]) -> set[tuple[int, int, int]]:
        made = desired(
            {},
            facts=facts(DOCKER),
            topology=WITH_DOCKER,
            roles=ROLES,
            engine_uid=990,
            ruled_locals=ruled,
        )
        rules = (rule for rule in made.rules if rule.iif == "docker0")
        assert all(rule.action == "prohibit" for rule in rules)
        return {(r.family, r.mark, r.mask) for r in made.rules if r.iif == "docker0"}

    assert denied(()) == set()
    assert denied(("docker0",)) == {
        (4, 0, MARK_KIND_MASK),
        (4, MARK_DIRECT, MARK_KIND_MASK),
        (6, 0, 0),
    }


def test_unruled_hosts_of_local_networks_are_accepted_while_running() -> None:
    running = plan(hosts=(CLIENT,))
    stopped = replace(running, policy=GlobalPolicy(stopped=True))
    assert unruled(running) == {'"docker0"': ""}
    assert unruled(stopped) == {}
    assert unruled(plan()) == {}


def unruled(made_for: Plan) -> dict[str, str]:
    ruled = local.ruled(made_for, WITH_DOCKER)
    return elements(made_for, WITH_DOCKER, {}, ruled_locals=ruled)["unruled"]


def test_networks_shared_with_a_lan_are_reported_and_single_addresses_not() -> None:
    modem = interface("wan2", "10.77.0.2/16")
    inside = interface("docker0", "10.77.0.129/25")
    single = interface("l2tp_1", "10.77.0.77/32")
    apart = interface("virbr0", "192.168.122.1/24")
    seen = facts(modem, inside, single, apart)
    assert list(overlaps(seen, discover(seen, ROLES))) == [
        ("wan2", IPv4Network("10.77.0.0/16"), "lan0"),
        ("docker0", IPv4Network("10.77.0.128/25"), "lan0"),
    ]

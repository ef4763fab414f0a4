"""The clients of CIDR rules that may take the fast path."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.model.device import InterfaceRoles
from egressd.model.facts import Facts, Interface, Route
from egressd.model.plan import GlobalPolicy, Limit, Plan
from egressd.planner.fast_networks import NetworkPlace, network_places
from egressd.planner.fast_path import Neighbourhood, Place
from egressd.planner.flatten import flatten
from egressd.planner.registry import (
    MARK_DIRECT,
    MARK_REJECT,
    egress_mark,
    group_mark,
    line_mark,
    node_mark,
)
from egressd.planner.topology import discover

ROLES = InterfaceRoles(lan=("lan0", "lan1"), wan=("wan1",))
LAN, OTHER_LAN = 2, 3
WAN = egress_mark(1)
GROUP = group_mark(4)


def neighbourhood(*routes: Route) -> Neighbourhood:
    """Return LANs of 10.77.0.0/24 and 10.78.0.0/24."""

    def interface(name: str, index: int, address: str) -> Interface:
        return Interface(name=name, index=index, is_up=True, addresses=(IPv4Interface(address),))

    lans = {"lan0": (LAN, "10.77.0.1/24"), "lan1": (OTHER_LAN, "10.78.0.1/24")}
    facts = Facts(
        interfaces={name: interface(name, *each) for name, each in lans.items()}, routes=routes
    )
    return Neighbourhood(facts, discover(facts, ROLES))


def plan(rules: Mapping[str, int], limited: Mapping[str, int] | None = None) -> Plan:
    """Return the plan of CIDR rules, by network and mark, numbered from 1. `limited`: Kbps."""
    marks = {IPv4Network(network): mark for network, mark in rules.items()}
    return Plan(
        nets=flatten(marks),
        limits={
            network: Limit(
                number=number, upload_kbps=(limited or {}).get(network, 0), download_kbps=0
            )
            for number, network in enumerate(rules, 1)
        },
    )


def found(wanted: Plan, seen: Neighbourhood | None = None) -> dict[str, NetworkPlace]:
    places = network_places(wanted, seen or neighbourhood(), {GROUP})
    return {str(network): it for network, it in places.items()}


@pytest.mark.parametrize("mark", [MARK_DIRECT, WAN, line_mark(3), GROUP])
def test_clients_of_a_kernel_routed_network_take_the_fast_path(mark: int) -> None:
    expected = NetworkPlace(Place(mark, LAN), rule=1)
    assert found(plan({"10.77.0.64/26": mark})) == {"10.77.0.64/26": expected}


@pytest.mark.parametrize("mark", [node_mark(7), MARK_REJECT, group_mark(5)])
def test_p1_clients_of_a_network_with_another_target_take_the_slow_path(mark: int) -> None:
    assert found(plan({"10.77.0.0/24": mark})) == {}


def test_a_network_around_lans_has_a_part_on_each() -> None:
    assert found(plan({"10.0.0.0/8": WAN})) == {
        "10.77.0.0/24": NetworkPlace(Place(WAN, LAN), 1),
        "10.78.0.0/24": NetworkPlace(Place(WAN, OTHER_LAN), 1),
    }


def test_the_narrower_of_two_networks_decides() -> None:
    places = found(plan({"10.77.0.0/24": WAN, "10.77.0.128/25": node_mark(7)}))
    assert places == {"10.77.0.0/25": NetworkPlace(Place(WAN, LAN), 1)}
    places = found(plan({"10.77.0.0/24": node_mark(7), "10.77.0.128/25": WAN}))
    assert places == {"10.77.0.128/25": NetworkPlace(Place(WAN, LAN), 2)}


def test_rules_with_the_same_target_are_counted_apart() -> None:
    places = found(plan({"10.77.0.0/25": WAN, "10.77.0.128/25": WAN}))
    assert {network: it.rule for network, it in places.items()} == {
        "10.77.0.0/25": 1,
        "10.77.0.128/25": 2,
    }


def test_clients_of_a_network_with_a_limit_take_the_slow_path() -> None:
    rules = {"10.77.0.0/24": WAN, "10.77.0.128/25": WAN}
    limited = found(plan(rules, limited={"10.77.0.128/25": 1_000}))
    assert limited.keys() == {"10.77.0.0/25"}
    assert found(plan(rules, limited={"10.77.0.0/24": 1_000})).keys() == {"10.77.0.128/25"}


def test_clients_behind_another_router_take_the_slow_path() -> None:
    through = Route(
        destination=IPv4Network("10.77.0.128/26"),
        interface="lan0",
        gateway=IPv4Address("10.77.0.2"),
    )
    places = found(plan({"10.77.0.0/24": WAN}), neighbourhood(through))
    assert places.keys() == {"10.77.0.0/25", "10.77.0.192/26"}


@pytest.mark.parametrize("policy", [GlobalPolicy(stopped=True), GlobalPolicy(opened=True)])
def test_p1_no_network_takes_the_fast_path_while_rules_are_suspended(policy: GlobalPolicy) -> None:
    wanted = plan({"10.77.0.0/24": WAN})
    wanted.policy = policy
    assert found(wanted) == {}


networks = st.builds(
    lambda host, length: str(IPv4Network(f"10.77.0.{host}/{length}", strict=False)),
    st.integers(0, 255),
    st.integers(22, 31),
)
marks = st.sampled_from([MARK_DIRECT, WAN, node_mark(7), MARK_REJECT])


@given(st.dictionaries(networks, marks, max_size=8), st.sets(networks))
def test_p1_each_address_has_the_place_of_its_longest_prefix(
    rules: dict[str, int], limits: set[str]
) -> None:
    wanted = plan(rules, limited=dict.fromkeys(limits, 1_000))
    places = {
        int(address): place
        for network, place in network_places(wanted, neighbourhood(), set()).items()
        for address in network
    }
    assert len(places) == sum(n.num_addresses for n in network_places(wanted, neighbourhood(), ()))
    numbers = {network: number for number, network in enumerate(rules, 1)}
    for address in IPv4Network("10.77.0.0/24"):
        around = [network for network in rules if address in IPv4Network(network)]
        best = max(around, key=lambda network: IPv4Network(network).prefixlen, default="")
        expected = None
        if best and best not in limits and rules[best] in (MARK_DIRECT, WAN):
            expected = NetworkPlace(Place(rules[best], LAN), numbers[best])
        assert places.get(int(address)) == expected

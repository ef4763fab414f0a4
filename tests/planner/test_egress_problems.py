"""The reason why nothing leaves by an interface or by the device's own route, from the routes."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import pytest

from egressd.model.device import InterfaceRoles
from egressd.model.facts import Facts, Interface, Route
from egressd.planner.egress_problems import missing_roles, why_closed, why_direct_closed
from egressd.planner.topology import Topology, discover

ROLES = InterfaceRoles(lan=("lan0",), wan=("wan1", "wan2"))
ANYWHERE, LOW, HIGH = (IPv4Network(n) for n in ("0.0.0.0/0", "0.0.0.0/1", "128.0.0.0/1"))


def interface(name: str, *addresses: str, is_up: bool = True, ppp: bool = False) -> Interface:
    found = tuple(map(IPv4Interface, addresses))
    return Interface(name=name, index=2, is_up=is_up, addresses=found, is_point_to_point=ppp)


def route(name: str, to: IPv4Network = ANYWHERE, metric: int = 0) -> Route:
    return Route(destination=to, interface=name, gateway=IPv4Address("198.51.100.1"), metric=metric)


WAN1, WAN2 = interface("wan1", "198.51.100.2/24"), interface("wan2", "198.51.101.2/24")
DOWN = interface("wan1", "198.51.100.2/24", is_up=False)


def facts(*interfaces: Interface, routes: tuple[Route, ...] = ()) -> Facts:
    return Facts(interfaces={each.name: each for each in interfaces}, routes=routes)


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (facts(WAN1, routes=(route("wan1"),)), ""),
        (facts(interface("wan1", "10.9.9.9/32", ppp=True)), ""),
        (facts(), "there is no interface wan1"),
        (facts(DOWN, routes=(route("wan1"),)), "the interface wan1 is down"),
        (facts(interface("wan1")), "the interface wan1 has no address"),
        (facts(WAN1), "the interface wan1 has no gateway"),
        (facts(WAN1, routes=(route("wan2"),)), "the interface wan1 has no gateway"),
    ],
)
def test_an_interface_is_closed_for_a_reason(seen: Facts, reason: str) -> None:
    assert why_closed("wan1", seen, ROLES) == reason


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        (facts(WAN1, WAN2, routes=(route("wan1", metric=1), route("wan2", metric=2))), ""),
        (facts(DOWN, WAN2, routes=(route("wan1", metric=2), route("wan2", metric=1))), ""),
        (facts(WAN1), "the device has no default route"),
        # The kernel takes the best route, with a carrier or without.
        (
            facts(DOWN, WAN2, routes=(route("wan1", metric=1), route("wan2", metric=2))),
            "the interface wan1 of the device's default route is down",
        ),
        # Of several routes with one metric, one that works is enough.
        (facts(DOWN, WAN2, routes=(route("wan1"), route("wan2"))), ""),
        (
            facts(WAN1, routes=(route("l2tp_1"),)),
            "the device's default route leads by the line l2tp_1",
        ),
        (
            facts(WAN1, interface("lan0", "10.0.0.1/24"), routes=(route("lan0"),)),
            "the device's default route leads by lan0, which is no WAN",
        ),
        # Two halves take precedence over a default route.
        (facts(WAN1, WAN2, routes=(route("wan1", LOW), route("wan1", HIGH))), ""),
        (
            facts(DOWN, WAN2, routes=(route("wan1", LOW), route("wan1", HIGH), route("wan2"))),
            "the interface wan1 of the device's default route is down",
        ),
        (facts(WAN1, routes=(route("wan1", LOW),)), "the device has no default route"),
    ],
)
def test_the_devices_own_route_is_closed_for_a_reason(seen: Facts, reason: str) -> None:
    assert why_direct_closed(seen, discover(seen, ROLES)) == reason


def test_a_role_without_an_interface_is_reported_with_its_setting() -> None:
    found, named = InterfaceRoles(), InterfaceRoles(lan=("lan0",), wan=("wan1",))
    told = list(missing_roles(Topology(), found))
    assert ["[lan] interfaces" in told[0], "[wan] interfaces" in told[1]] == [True, True]
    assert len(list(missing_roles(Topology(lans=("lan0",)), found))) == 1
    assert list(missing_roles(discover(Facts(), named), named)) == []

"""The interface that a line is dialled by."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import msgspec

from egressd.model.facts import Facts, Interface, Route
from egressd.model.nouns import Line
from egressd.planner.lines import line_rules as lines_guard
from egressd.planner.lines.carrier import Carrier, carrier
from egressd.planner.registry import CLEAR_LINE_PORTS, LINE_PORTS

SERVER = IPv4Address("203.0.113.9")
LINE = Line(
    id=1, type="l2tp", name="l2tp_1", server=str(SERVER), port=1701, username="u", password="p"
)
PINNED = msgspec.structs.replace(LINE, interface="wan2")


def interface(name: str, *addresses: str, is_up: bool = True) -> Interface:
    return Interface(
        name=name, index=2, is_up=is_up, addresses=tuple(map(IPv4Interface, addresses))
    )


def route(destination: str, name: str, gateway: str = "", metric: int = 0) -> Route:
    return Route(
        destination=IPv4Network(destination),
        interface=name,
        gateway=IPv4Address(gateway) if gateway else None,
        metric=metric,
    )


def facts(*routes: Route, without: str = "") -> Facts:
    every = (
        interface("lan0", "10.77.0.1/24"),
        interface("wan1", "192.0.2.2/30"),
        interface("wan2", "198.51.100.7/24", "198.51.100.2/24"),
        interface("l2tp_1", "10.9.9.2/32"),
    )
    return Facts(interfaces={i.name: i for i in every if i.name != without}, routes=routes)


WAN1 = route("0.0.0.0/0", "wan1", "192.0.2.1", metric=100)
WAN2 = route("0.0.0.0/0", "wan2", "198.51.100.1", metric=200)


def test_a_line_without_an_interface_follows_the_default_route() -> None:
    assert carrier(LINE, SERVER, facts(WAN2, WAN1)) == Carrier("wan1", IPv4Address("192.0.2.2"))
    assert carrier(LINE, SERVER, facts(WAN2)) == Carrier("wan2", IPv4Address("198.51.100.7"))


def test_a_narrower_route_takes_precedence() -> None:
    narrow = route("203.0.113.0/24", "wan2", "198.51.100.1", metric=900)
    found = carrier(LINE, SERVER, facts(WAN1, narrow))
    assert found == Carrier("wan2", IPv4Address("198.51.100.7"))


def test_a_pinned_line_uses_its_interface_despite_the_routes() -> None:
    found = carrier(PINNED, SERVER, facts(WAN1))
    assert found == Carrier("wan2", IPv4Address("198.51.100.7"))


def test_the_loopback_carries_no_line() -> None:
    loopback = msgspec.structs.replace(interface("lo", "127.0.0.1/8"), is_loopback=True)
    known = facts(WAN1, route("127.0.0.0/8", "lo"))
    seen = msgspec.structs.replace(known, interfaces={**known.interfaces, "lo": loopback})
    for line in (LINE, msgspec.structs.replace(LINE, interface="lo")):
        for server in map(IPv4Address, ("127.0.0.1", "10.77.0.1", "203.0.113.9")):
            found = carrier(line, server, seen)
            assert found is None or found.interface == "wan1", (line.interface, server)


def test_a_pinned_line_has_the_address_in_its_gateways_network() -> None:
    near = route("0.0.0.0/0", "wan2", "203.0.113.65", metric=900)
    modem = interface("wan2", "192.168.100.2/24", "203.0.113.77/24")
    seen = msgspec.structs.replace(facts(WAN1, near), interfaces={"wan2": modem})
    assert carrier(PINNED, IPv4Address("8.8.8.8"), seen) == Carrier(
        "wan2", IPv4Address("203.0.113.77")
    )


def test_a_host_route_through_the_line_itself_is_ignored() -> None:
    """A server may give its public address as far end: the kernel adds this very route."""
    found = carrier(LINE, SERVER, facts(route("203.0.113.9/32", "l2tp_1"), WAN1))
    assert found == Carrier("wan1", IPv4Address("192.0.2.2"))


def test_the_local_address_is_in_the_gateways_network() -> None:
    two = interface("wan3", "10.0.0.2/24", "203.0.113.77/24")
    seen = Facts(interfaces={"wan3": two}, routes=(route("0.0.0.0/0", "wan3", "203.0.113.1"),))
    found = carrier(LINE, IPv4Address("8.8.8.8"), seen)
    assert found == Carrier("wan3", IPv4Address("203.0.113.77"))


def test_without_a_route_there_is_no_carrier() -> None:
    assert carrier(LINE, SERVER, facts()) is None
    assert carrier(LINE, SERVER, facts(WAN1, without="wan1")) is None
    assert carrier(PINNED, SERVER, facts(WAN1, without="wan2")) is None
    down = Facts(interfaces={"wan2": interface("wan2", "198.51.100.7/24", is_up=False)})
    assert carrier(PINNED, SERVER, down) is None


def test_the_guard_covers_the_ports_of_lines_with_a_secret() -> None:
    assert lines_guard.OUTPUT[:2] == (
        "udp sport 16896-17151 ip daddr != @lannet rt ipsec missing drop",
        "udp sport 16896-17151 fib saddr type local rt ipsec missing drop",
    )
    assert lines_guard.INPUT[:1] == (
        "udp dport 16896-17151 fib daddr type local meta ipsec missing drop",
    )
    assert (LINE_PORTS.start, LINE_PORTS.stop - 1) == (16896, 17151)
    assert LINE_PORTS.stop == CLEAR_LINE_PORTS.start, "two kinds of lines, a rule for each"

"""Addresses that a line may have, and those that belong to other networks."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import pytest

from egressd.model.facts import Facts, Interface, Route
from egressd.planner.lines.address import Taken, objection

ANYWHERE = IPv4Network("0.0.0.0/0")
TAKEN = Taken(
    lan_networks=(
        ("lan0", IPv4Network("10.77.0.0/24")),
        ("lan0", IPv4Network("10.80.0.0/16")),
    ),
    servers={IPv4Address("198.51.101.10")},
    resolvers={"192.0.2.53"},
)


def interface(name: str, *addresses: str, peer: str = "", is_loopback: bool = False) -> Interface:
    return Interface(
        name=name,
        index=2,
        is_up=True,
        is_loopback=is_loopback,
        addresses=tuple(map(IPv4Interface, addresses)),
        peers=(IPv4Address(peer),) if peer else (),
    )


def told(own: str, peer: str = "192.168.101.1") -> str:
    interfaces = (
        interface("lo", "127.0.0.1/8", is_loopback=True),
        interface("lan0", "10.77.0.1/24"),
        interface("wan1", "10.1.0.2/24"),
        interface("ppp0", "203.0.113.7/32", peer="203.0.113.1"),
        interface("l2tp_b", "192.168.101.12/32", peer="192.168.101.1"),
        interface("l2tp_a", f"{own}/32", peer=peer),
    )
    gateway = Route(destination=ANYWHERE, interface="wan1", gateway=IPv4Address("172.20.0.1"))
    return objection(
        "l2tp_a", Facts(interfaces={i.name: i for i in interfaces}, routes=(gateway,)), TAKEN
    )


@pytest.mark.parametrize(
    ("own", "whose"),
    [
        ("10.77.0.12", "which is in the LAN lan0"),
        ("10.77.0.1", "which is in the LAN lan0"),
        ("10.80.3.4", "which is in the LAN lan0"),
        ("10.1.0.2", "which is an address of wan1"),
        ("203.0.113.7", "which is an address of ppp0"),
        ("203.0.113.1", "which is the gateway of ppp0"),
        ("172.20.0.1", "which is the gateway of wan1"),
        ("198.51.101.10", "which is the address of a VPN server"),
        ("192.0.2.53", "which is the address of a resolver"),
        *(
            (nobody, "which is nobody's address")
            for nobody in ("127.0.0.5", "0.0.0.0", "224.0.0.1", "255.255.255.255")
        ),
    ],
)
def test_a_line_with_an_address_of_another_network_is_refused(own: str, whose: str) -> None:
    assert told(own) == f"the server hands out {own}, {whose}"
    assert told(own, peer="") == told(own)


def test_a_line_may_have_a_free_address_or_that_of_another_line() -> None:
    for own in ("192.168.101.11", "203.0.113.9", "192.168.101.12", "192.168.101.1", "10.1.0.9"):
        assert told(own) == ""
    assert objection("l2tp_c", Facts(), TAKEN) == ""


def test_the_far_end_may_have_any_address() -> None:
    for peer in ("10.77.0.12", "10.77.0.1", "10.1.0.1", "192.0.2.53", "198.51.101.10"):
        assert told("192.168.101.11", peer=peer) == ""

"""Which addresses a line may have.

The kernel takes whatever a server hands out for an address of this machine's own, ahead of all
routes and policy rules: a client that has it would be dead, or what it is the way to.
"""

from __future__ import annotations

from collections.abc import Set
from ipaddress import IPv4Address, IPv4Network
from typing import Final

import msgspec

from egressd.model.facts import Facts
from egressd.planner.topology import is_line


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses that somebody has and `Facts` do not tell of."""

    lan_networks: tuple[tuple[str, IPv4Network], ...] = ()
    """As `Topology` has them."""
    servers: Set[IPv4Address] = frozenset()
    """Those that lines are dialled to."""
    resolvers: Set[str] = frozenset()
    """Those that may be asked."""


_BROADCAST: Final = IPv4Address("255.255.255.255")


def is_hosts(address: IPv4Address) -> bool:
    """Whether some other machine may have that address."""
    return not (
        address.is_loopback
        or address.is_multicast
        or address.is_unspecified
        or address == _BROADCAST
    )


def objection(name: str, facts: Facts, taken: Taken) -> str:
    """Why the line must not have the addresses that its interface has, in plain words; or "".

    That another line has the same does no harm: each has a routing table and marks of its own. Nor
    does one of a WAN's network that nobody has to be reached at, nor what the far end is called.
    """
    interface = facts.interfaces.get(name)
    if interface is None:
        return ""
    for address in interface.addresses:
        if whose := _whose(address.ip, facts, taken):
            return f"the server hands out {address.ip}, {whose}"
    return ""


def _whose(address: IPv4Address, facts: Facts, taken: Taken) -> str:
    if not is_hosts(address):
        return "which is nobody's address"
    for lan, network in taken.lan_networks:
        if address in network:
            return f"which is in the LAN {lan}"
    for other in facts.interfaces.values():
        if other.is_loopback or is_line(other.name):
            continue
        if any(address == own.ip for own in other.addresses):
            return f"which is an address of {other.name}"
        if address in other.peers:
            return f"which is the gateway of {other.name}"
    for route in facts.routes:
        if route.gateway == address and not is_line(route.interface):
            return f"which is the gateway of {route.interface}"
    if address in taken.servers:
        return "which is the address of a VPN server"
    if str(address) in taken.resolvers:
        return "which is the address of a resolver"
    return ""

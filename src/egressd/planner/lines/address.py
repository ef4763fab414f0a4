"""The addresses that a line must not have.

The kernel takes each address that a server hands out as an address of this machine, ahead of all
routes and policy rules. A client with that address would be unreachable, or the host behind it.
"""

from __future__ import annotations

from collections.abc import Set
from ipaddress import IPv4Address, IPv4Network
from typing import Final

import msgspec

from egressd.model.facts import Facts
from egressd.model.wording import NONE, Sentence, say
from egressd.planner.topology import is_line


class Taken(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses in use that `Facts` do not list."""

    lan_networks: tuple[tuple[str, IPv4Network], ...] = ()
    """As in `Topology`."""
    servers: Set[IPv4Address] = frozenset()
    """The servers that lines are dialled to."""
    resolvers: Set[str] = frozenset()
    """The resolvers that may be queried."""


_BROADCAST: Final = IPv4Address("255.255.255.255")


def is_hosts(address: IPv4Address) -> bool:
    """True if a host may have that address."""
    return not (
        address.is_loopback
        or address.is_multicast
        or address.is_unspecified
        or address == _BROADCAST
    )


def objection(name: str, facts: Facts, taken: Taken) -> Sentence:
    """Return the reason against the addresses of the line's interface, or no sentence.

    Two lines may have the same address, since each has a routing table and marks of its own. An
    address in a WAN's network is fine if no host that must be reached has it, and so is any address
    of the line's far end.
    """
    interface = facts.interfaces.get(name)
    if interface is None:
        return NONE
    for address in interface.addresses:
        if whose := _whose(address.ip, facts, taken):
            return say("given-address-refused", address=str(address.ip), whose=whose)
    return NONE


def _whose(address: IPv4Address, facts: Facts, taken: Taken) -> Sentence:
    if not is_hosts(address):
        return say("whose-none")
    for lan, network in taken.lan_networks:
        if address in network:
            return say("whose-lan", name=lan)
    for other in facts.interfaces.values():
        if other.is_loopback or is_line(other.name):
            continue
        if any(address == own.ip for own in other.addresses):
            return say("whose-interface", name=other.name)
        if address in other.peers:
            return say("whose-gateway", name=other.name)
    for route in facts.routes:
        if route.gateway == address and not is_line(route.interface):
            return say("whose-gateway", name=route.interface)
    if address in taken.servers:
        return say("whose-server")
    if str(address) in taken.resolvers:
        return say("whose-resolver")
    return NONE

"""Checks of nodes' servers: none on this device, and those of a list on the internet.

A list is of foreign origin. The device itself would connect to a server in a LAN that the list
names, and so would a delay check.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from ipaddress import IPv4Network, IPv6Network

import msgspec

from egressd.formats.config_json import NodeConfig
from egressd.formats.hosts import Address, address_of, is_inner_name, kind_of_address, leads_here
from egressd.model.faults import Fault, fault
from egressd.model.wording import NONE, Sentence, say
from egressd.planner.local_names import is_beneath


class ServerSurroundings(msgspec.Struct, frozen=True, kw_only=True):
    """The current surroundings of the device."""

    own: frozenset[Address] = frozenset()
    """The device's own addresses."""
    networks: tuple[IPv4Network | IPv6Network, ...] = ()
    """Networks of LANs and local networks."""
    domains: tuple[str, ...] = ()
    """Domains whose names belong to hosts in these networks (``[dns] local``)."""

    def near_address(self, host: str) -> Address | None:
        """Return the address that a host is, if it is one of the device or of the networks."""
        address = address_of(host)
        if address is None or address in self.own:
            return address
        return address if any(address in network for network in self.networks) else None


Around = Callable[[], ServerSurroundings]
"""A function that returns the surroundings of the device. Raises Failed."""


def own_problems(config: NodeConfig, around: ServerSurroundings) -> Iterator[Fault]:
    """Yield the fault that a node's server is this device, to which no node may lead. A node that
    is dialled through a relay has a server on the relay's side.
    """
    server = str(config.fields["server"])
    if not config.settings.dialer_proxy and _is_own(server, around):
        yield fault("server", "server-is-device")


def inner_problems(config: NodeConfig, around: ServerSurroundings) -> Iterator[Fault]:
    """Yield the fault that a node's server is not on the internet."""
    server = str(config.fields["server"])
    if reason := _inner_reason(server, around):
        yield fault("server", "server-not-public", reason=reason)


def _is_own(server: str, around: ServerSurroundings) -> bool:
    return leads_here(server) or address_of(server) in around.own


def _inner_reason(server: str, around: ServerSurroundings) -> Sentence:
    address = address_of(server)
    if address is None:
        is_near = is_inner_name(server) or any(is_beneath(server, d) for d in around.domains)
        return say("address-inner-name") if is_near else NONE
    if kind := kind_of_address(address):
        return say(f"address-{kind}")
    return say("address-in-lan") if any(address in each for each in around.networks) else NONE

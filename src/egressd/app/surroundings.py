"""The present surroundings of the device: its addresses, its LANs and WANs, and their networks."""

from __future__ import annotations

from collections.abc import Iterable

from egressd.app import network
from egressd.formats.hosts import Address
from egressd.model.device import InterfaceRoles
from egressd.model.errors import Failed
from egressd.planner.topology import discover
from egressd.service.servers import ServerSurroundings


def look_around(roles: InterfaceRoles, domains: Iterable[str]) -> ServerSurroundings:
    """Return the surroundings. `domains` are those of ``[dns] local``. Raises Failed."""
    try:
        topology = discover(network.facts(), roles)
        own6 = list(network.own_addresses6())
        own: list[Address] = [*network.own_addresses()]
        own += [address.ip for _, address in own6]
    except OSError as error:
        raise Failed("see this device's addresses", str(error)) from error
    inner = (*topology.lans, *topology.local)
    networks = (network for _, network in (*topology.lan_networks, *topology.local_networks))
    networks6 = (address.network for name, address in own6 if name in inner)
    return ServerSurroundings(
        own=frozenset(own), networks=(*networks, *networks6), domains=tuple(domains)
    )


def roles_of(roles: InterfaceRoles) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of this box's LANs and WANs, each in order. Raises Failed."""
    try:
        topology = discover(network.facts(), roles)
    except OSError as error:
        raise Failed("see this device's interfaces", str(error)) from error
    return tuple(sorted(topology.lans)), tuple(sorted(topology.wans))

"""The present surroundings of the device: its own addresses, and the networks of its LANs."""

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

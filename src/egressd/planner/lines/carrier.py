"""The interface that a line is dialled by.

xl2tpd does not know packet marks, and charon's ESP packets have none of egressd's. Both keep to one
source address, and the policy rules for the addresses of interfaces (`egressd.planner.routing`)
keep its packets on that interface.
"""

from __future__ import annotations

from ipaddress import IPv4Address

import msgspec

from egressd.model.facts import Facts, Interface, Route
from egressd.model.names import AUTO
from egressd.model.nouns import Line
from egressd.planner.topology import is_line


class Carrier(msgspec.Struct, frozen=True):
    """An interface, and the address on it that a line is dialled from."""

    interface: str
    address: IPv4Address


def carrier(line: Line, server: IPv4Address, facts: Facts) -> Carrier | None:
    """Return the current carrier of `line`, or None when there is none.

    A line without a fixed interface uses the main table's route to its server, without other lines'
    routes. A server often gives its own public address as the far end, and the kernel then routes
    that address into the tunnel, until netd removes the route (`routes.withdraw_peers`).
    """
    is_auto = line.interface == AUTO
    routes = [
        route
        for route in facts.routes
        if server in route.destination
        and (not is_line(route.interface) if is_auto else route.interface == line.interface)
    ]
    for route in sorted(routes, key=_preference):
        if found := _on(facts.interfaces.get(route.interface), route.gateway or server):
            return found
    return None if is_auto else _on(facts.interfaces.get(line.interface))


def _preference(route: Route) -> tuple[int, int]:
    return -route.destination.prefixlen, route.metric


def _on(interface: Interface | None, neighbour: IPv4Address | None = None) -> Carrier | None:
    """Return the interface with its address in the neighbour's network, or else its first address.

    The loopback is never a carrier, so that packets of lines' daemons do not reach the services
    that listen there.
    """
    if interface is None or not interface.is_up or not interface.addresses:
        return None
    if interface.is_loopback:
        return None
    near = [a for a in interface.addresses if neighbour is not None and neighbour in a.network]
    return Carrier(interface.name, (near or interface.addresses)[0].ip)

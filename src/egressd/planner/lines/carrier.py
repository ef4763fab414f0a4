"""By which interface a line is dialled, and the policy rules that keep its packets there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address

import msgspec

from egressd.model.facts import Facts, Interface, Route
from egressd.model.names import AUTO
from egressd.model.nouns import Line
from egressd.model.plan import Egress
from egressd.model.routing import PolicyRule
from egressd.planner.registry import PRIORITY_CARRIER, egress_table
from egressd.planner.topology import Topology, inbound, is_line


class Carrier(msgspec.Struct, frozen=True):
    """An interface and the address on it that a line is dialled from."""

    interface: str
    address: IPv4Address


def carrier(line: Line, server: IPv4Address, facts: Facts) -> Carrier | None:
    """What carries `line` at the moment, or None when nothing can.

    A line left to itself takes the main table's route to its server, other lines' routes
    aside: a server often gives its own public address as the far end, and the kernel then
    routes that address into the tunnel, until that is taken back (`routes.withdraw_peers`).
    """
    is_auto = line.interface == AUTO
    ways = [
        route
        for route in facts.routes
        if server in route.destination
        and (not is_line(route.interface) if is_auto else route.interface == line.interface)
    ]
    for route in sorted(ways, key=_preference):
        if found := _on(facts.interfaces.get(route.interface), route.gateway or server):
            return found
    return None if is_auto else _on(facts.interfaces.get(line.interface))


def _preference(route: Route) -> tuple[int, int]:
    return -route.destination.prefixlen, route.metric


def _on(interface: Interface | None, neighbour: IPv4Address | None = None) -> Carrier | None:
    """The interface with its address in the neighbour's network, or else its first."""
    if interface is None or not interface.is_up or not interface.addresses:
        return None
    near = [a for a in interface.addresses if neighbour is not None and neighbour in a.network]
    return Carrier(interface.name, (near or interface.addresses)[0].ip)


def rules(
    lines: Iterable[Line], egresses: Mapping[str, Egress], *, facts: Facts, topology: Topology
) -> Iterator[PolicyRule]:
    """What sends the daemons' packets out by the carrier whose address they bear.

    xl2tpd knows no packet marks and charon's ESP has none of ours, but both keep to an
    address. Rules exist for the interfaces that lines may be dialled by, and only apply to
    what this machine itself sends. Without a route in the carrier's table the packet is
    refused: it never leaves by another WAN.
    """
    pinned = {line.interface for line in lines}
    names = pinned | set(topology.wans if AUTO in pinned else ())
    for name, egress in {**inbound(topology), **egresses}.items():
        # What this machine answers from its address in a LAN goes where it always went.
        is_lan = name in topology.lans and name not in topology.wans
        if name not in names or name not in facts.interfaces or is_lan:
            continue
        for address in dict.fromkeys(a.ip for a in facts.interfaces[name].addresses):
            yield PolicyRule(
                priority=PRIORITY_CARRIER,
                source=address,
                iif="lo",
                table=egress_table(egress.number),
            )

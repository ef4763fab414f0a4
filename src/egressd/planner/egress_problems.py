"""The reason why nothing leaves by an interface, or by the device's own route, according to the
kernel's tables.

The reason is in plain words; an empty text means that traffic may leave. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from egressd.model.device import InterfaceRoles
from egressd.model.facts import Facts, Route
from egressd.planner.topology import Topology, is_line, uplink

TAKEN: Final = (
    "another program's policy rules come before egressd's and send clients elsewhere (ip rule show)"
)

_HALVES: Final = 1
"""Prefix length of the routes that some VPN programs use in place of a default route: two
halves."""


def why_closed(name: str, facts: Facts, roles: InterfaceRoles) -> str:
    """Return why nothing leaves by interface `name`."""
    interface = facts.interfaces.get(name)
    if interface is None:
        return f"there is no interface {name}"
    if not interface.is_up:
        return f"the interface {name} is down"
    if not interface.addresses:
        return f"the interface {name} has no address"
    if not uplink(name, facts, roles).has_route:
        return f"the interface {name} has no gateway"
    return ""


def why_direct_closed(facts: Facts, topology: Topology) -> str:
    """Return why nothing leaves by the device's own route.

    The kernel takes the default route of the lowest metric, with a carrier or without.
    """
    reasons = {}
    for route in direct_routes(facts):
        name = route.interface
        interface = facts.interfaces.get(name)
        if is_line(name):
            reasons[name] = f"the device's default route leads by the line {name}"
        elif interface is None or not interface.is_up:
            reasons[name] = f"the interface {name} of the device's default route is down"
        elif name not in topology.direct_exits:
            reasons[name] = f"the device's default route leads by {name}, which is no WAN"
        else:
            return ""
    return "; ".join(reasons.values()) or "the device has no default route"


def direct_routes(facts: Facts) -> list[Route]:
    """Return the routes to destinations beyond the neighbours: the default route, or its two
    halves.
    """
    halves = [r for r in facts.routes if r.destination.prefixlen == _HALVES]
    if len({r.destination for r in halves}) > 1:
        return _best(halves)
    return _best([r for r in facts.routes if r.destination.prefixlen == 0])


def missing_roles(topology: Topology, roles: InterfaceRoles) -> Iterable[str]:
    """Yield a sentence for each role that no interface has, with the setting that assigns it."""
    if not topology.lans:
        yield (
            "no LAN was found, because no interface has a private address; no client is served:"
            " set [lan] interfaces in the configuration"
        )
    if not topology.wans and not roles.wan:
        yield (
            "no WAN was found, since no interface has a default route:"
            " set [wan] interfaces in the configuration"
        )


def _best(routes: list[Route]) -> list[Route]:
    lowest = min((route.metric for route in routes), default=0)
    return [route for route in routes if route.metric == lowest]

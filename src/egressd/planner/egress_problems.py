"""The reason why nothing leaves by an interface, or by the device's own route, according to the
kernel's tables.

The reason is in plain words; an empty text means that traffic may leave. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from egressd.model.device import InterfaceRoles
from egressd.model.facts import Facts, Route
from egressd.model.wording import NONE, Sentence, say, together
from egressd.planner.topology import Topology, is_line, uplink

TAKEN: Final = say("policy-rules-before")

_HALVES: Final = 1
"""Prefix length of the routes that some VPN programs use in place of a default route: two
halves."""


def why_closed(name: str, facts: Facts, roles: InterfaceRoles) -> Sentence:
    """Return why nothing leaves by interface `name`."""
    interface = facts.interfaces.get(name)
    if interface is None:
        return say("no-interface", name=name)
    if not interface.is_up:
        return say("interface-down", name=name)
    if not interface.addresses:
        return say("interface-without-address", name=name)
    if not uplink(name, facts, roles).has_route:
        return say("interface-without-gateway", name=name)
    return NONE


def why_direct_closed(facts: Facts, topology: Topology) -> Sentence:
    """Return why nothing leaves by the device's own route.

    The kernel takes the default route of the lowest metric, with a carrier or without.
    """
    reasons = {}
    for route in direct_routes(facts):
        name = route.interface
        interface = facts.interfaces.get(name)
        if is_line(name):
            reasons[name] = say("default-route-by-line", name=name)
        elif interface is None or not interface.is_up:
            reasons[name] = say("default-route-down", name=name)
        elif name not in topology.direct_exits:
            reasons[name] = say("default-route-by-no-wan", name=name)
        else:
            return NONE
    return together(reasons.values()) or say("no-default-route")


def direct_routes(facts: Facts) -> list[Route]:
    """Return the routes to destinations beyond the neighbours: the default route, or its two
    halves.
    """
    halves = [r for r in facts.routes if r.destination.prefixlen == _HALVES]
    if len({r.destination for r in halves}) > 1:
        return _best(halves)
    return _best([r for r in facts.routes if r.destination.prefixlen == 0])


def missing_roles(topology: Topology, roles: InterfaceRoles) -> Iterable[Sentence]:
    """Yield a sentence for each role that no interface has, with the setting that assigns it, and
    for each configured source that its interface does not have.
    """
    if not topology.lans:
        yield say("no-lan-found")
    if not topology.wans and not roles.wan:
        yield say("no-wan-found")
    for name, address in roles.sources.items():
        if (name, address) not in topology.sources:
            yield say("source-missing", name=name, address=str(address))


def _best(routes: list[Route]) -> list[Route]:
    lowest = min((route.metric for route in routes), default=0)
    return [route for route in routes if route.metric == lowest]

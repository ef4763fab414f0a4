"""Policy routing: the table for each mark, and the default-deny rules beneath all of them.

The default-deny rules are the part of the guard that holds without nftables: packets from a LAN
that no rule above matched are prohibited, and so are packets that the engine sends without a mark.
With them a foreign ``nft flush ruleset`` leaks nothing. See ``docs/dataplane.md``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Network

import msgspec

from egressd.model.device import InterfaceRoles
from egressd.model.facts import Facts
from egressd.model.plan import Egress
from egressd.model.routing import PolicyRule, RouteEntry
from egressd.model.wording import Sentence
from egressd.planner import precedence
from egressd.planner.registry import (
    MARK_ASKED_LOCALLY,
    MARK_DIRECT,
    MARK_ENGINE,
    MARK_KIND_MASK,
    MARK_UNROUTED_MASK,
    METRIC_IPV6,
    METRIC_UNREACHABLE,
    PRIORITY_ANSWER,
    PRIORITY_DIRECT,
    PRIORITY_EGRESS,
    PRIORITY_ENGINE_DENY,
    PRIORITY_LAN,
    PRIORITY_LAN_DENY,
    PRIORITY_SOURCE,
    PRIORITY_TPROXY,
    RT_TABLE_MAIN,
    TABLE_LAN,
    TABLE_TPROXY,
    egress_table,
)
from egressd.planner.topology import (
    Topology,
    connected,
    former,
    inbound,
    interface_mark,
    routes_by,
    uplink,
    uplinks6,
)

_ANYWHERE = IPv4Network("0.0.0.0/0")
_ANYWHERE6 = IPv6Network("::/0")
_EXACT = 0xFFFF_FFFF  # the mask of a whole mark


class Routing(msgspec.Struct, frozen=True, kw_only=True):
    """All routes and policy rules of egressd."""

    routes: tuple[RouteEntry, ...]
    rules: tuple[PolicyRule, ...]
    problems: tuple[Sentence, ...] = ()
    """Sentences about other programs' policy rules that match packets of LAN clients before
    egressd's."""


def desired(
    egresses: Mapping[str, Egress],
    *,
    facts: Facts,
    topology: Topology,
    roles: InterfaceRoles,
    engine_uid: int,
    ruled_locals: Collection[str] = (),
    resolvers: Collection[str] = (),
) -> Routing:
    """Return the wanted routing tables and policy rules. `ruled_locals`: local networks with
    clients in them; `resolvers`: the resolvers that may be asked.

    An egress whose interface is down keeps its table with nothing but ``unreachable`` in it:
    otherwise the look-up would fall through to the main table. So do the LANs: packets for a
    client, including an ICMP error that quotes its own packet, would leave by a WAN.
    """
    inner_networks = (*topology.lan_networks, *topology.local_networks)
    routes = [
        RouteEntry(table=TABLE_TPROXY, destination=_ANYWHERE, kind="local", device="lo"),
        *_beneath((network for _, network in inner_networks), TABLE_LAN),
    ]
    rules = [*_default_deny_rules(topology, engine_uid, ruled_locals), *_fixed_rules()]
    ways_to: dict[IPv4Network, str] = {}
    for name, network in inner_networks:
        ways_to.setdefault(network, name)  # if two LANs have the same network, one is used
    inner: list[RouteEntry] = []
    for network, name in ways_to.items():
        gateway = next(
            (r.gateway for r in facts.routes if r.interface == name and r.destination == network),
            None,
        )
        inner.append(RouteEntry(table=TABLE_LAN, destination=network, device=name, gateway=gateway))
    routes += inner
    answers = inbound(topology)
    former_wans = {n: egress for n, egress in former(topology).items() if n not in egresses}
    rules += _source_rules({**former_wans, **egresses, **answers}, topology)
    tables = [(PRIORITY_EGRESS, *item) for item in egresses.items()]
    tables += [(PRIORITY_ANSWER, *item) for item in answers.items()]
    for priority, name, egress in tables:
        table = egress_table(egress.number)
        routes += _beneath([_ANYWHERE], table)
        # Neighbours are not reached by way of the gateway, nor cut off if there is none.
        routes += [
            RouteEntry(table=table, destination=network, device=name)
            for network in connected(name, facts)
        ]
        routes += _to_resolvers(resolvers, inner, table)
        found = uplink(name, facts, roles)
        if found.has_route:
            routes.append(
                RouteEntry(table=table, destination=_ANYWHERE, device=name, gateway=found.gateway)
            )
        rules.append(
            PolicyRule(
                priority=priority,
                mark=interface_mark(name, egress.number),
                mask=_EXACT,
                table=table,
            )
        )
    for name, egress in former_wans.items():
        table = egress_table(egress.number)
        routes += _beneath([_ANYWHERE], table)
        routes += [
            RouteEntry(table=table, destination=r.destination, device=name, gateway=r.gateway)
            for r in routes_by(name, facts)
        ]
    for egress_name, egress in {**former_wans, **answers}.items():
        routes += _ways6(egress_name, egress_table(egress.number), facts)
    routes += _inner6(facts, topology)
    for name, egress in egresses.items():
        routes += _ways6(name, egress_table(egress.number), facts)
        rules.append(
            PolicyRule(
                family=6,
                priority=PRIORITY_EGRESS,
                mark=interface_mark(name, egress.number),
                mask=_EXACT,
                table=egress_table(egress.number),
            )
        )
    clients_by = (*topology.lans, *ruled_locals)
    placed = precedence.place(rules, facts.policy_rules, clients_by)
    return Routing(routes=tuple(routes), rules=placed.rules, problems=placed.problems)


def _to_resolvers(
    resolvers: Iterable[str], inner: Collection[RouteEntry], table: int
) -> Iterator[RouteEntry]:
    """Yield the routes of an egress's table to resolvers in LANs and local networks: its clients'
    questions are routed to these resolvers by this table only.
    """
    for address in map(IPv4Address, dict.fromkeys(resolvers)):
        routes = [route for route in inner if address in route.destination]
        if routes:
            route = max(routes, key=lambda route: route.destination.prefixlen)
            host = IPv4Network(address)
            yield msgspec.structs.replace(route, table=table, destination=host)
            yield from _beneath([host], table)


def _inner6(facts: Facts, topology: Topology) -> Iterator[RouteEntry]:
    """Yield the routes of this machine to LANs and local networks by IPv6 from any address of its
    own.
    """
    for route in facts.routes6:
        if route.interface in (*topology.lans, *topology.local) and route.destination != _ANYWHERE6:
            yield RouteEntry(
                table=TABLE_LAN,
                destination=route.destination,
                device=route.interface,
                gateway=route.gateway,
                metric=METRIC_IPV6,
            )


def _ways6(name: str, table: int, facts: Facts) -> list[RouteEntry]:
    """Return the routes of the engine to nodes' servers by IPv6 through an interface, or none."""
    return [
        *_beneath([_ANYWHERE6], table),
        *(
            RouteEntry(
                table=table,
                destination=route.destination,
                device=name,
                gateway=route.gateway,
                metric=METRIC_IPV6,
            )
            for route in uplinks6(name, facts)
        ),
    ]


def _beneath(networks: Iterable[IPv4Network | IPv6Network], table: int) -> list[RouteEntry]:
    """Return the routes that match if the routes to these networks are gone, before other tables
    do.
    """
    return [
        RouteEntry(table=table, destination=network, kind="unreachable", metric=METRIC_UNREACHABLE)
        for network in dict.fromkeys(networks)
    ]


def _source_rules(egresses: Mapping[str, Egress], topology: Topology) -> Iterator[PolicyRule]:
    """Yield the rules that keep this machine's own packets (answers, resets, ICMP errors, packets
    of lines' daemons) on the interface that has their source address, independent of nftables. An
    interface that was a WAN keeps its packets, too.

    Its table ends with ``unreachable``: they leave by that interface or not at all.
    """
    for name, address in topology.outer_addresses:
        if name in egresses:
            yield PolicyRule(
                family=address.version,
                priority=PRIORITY_SOURCE,
                source=address,
                iif="lo",
                table=egress_table(egresses[name].number),
            )


def _default_deny_rules(
    topology: Topology, engine_uid: int, ruled_locals: Collection[str]
) -> list[PolicyRule]:
    """Return the rules that prohibit packets that no rule above matched.

    From a local network with clients in it only packets that nftables has marked as unruled
    (`MARK_LOCAL`) go on to other programs' rules and the main table, and no IPv6.
    """
    rules = []
    for name in ruled_locals:
        rules += [
            PolicyRule(
                priority=PRIORITY_LAN_DENY,
                iif=name,
                mark=mark,
                mask=MARK_KIND_MASK,
                action="prohibit",
            )
            for mark in (0, MARK_DIRECT)
        ]
        rules.append(PolicyRule(family=6, priority=PRIORITY_LAN_DENY, iif=name, action="prohibit"))
    for family in (4, 6):
        rules += [
            PolicyRule(family=family, priority=PRIORITY_LAN_DENY, iif=name, action="prohibit")
            for name in topology.lans
        ]
        rules.append(
            PolicyRule(
                family=family,
                priority=PRIORITY_ENGINE_DENY,
                uids=(engine_uid, engine_uid),
                action="prohibit",
            )
        )
    return rules


def _fixed_rules() -> list[PolicyRule]:
    direct = [
        PolicyRule(
            family=family,
            priority=PRIORITY_DIRECT,
            mark=MARK_DIRECT,
            mask=MARK_KIND_MASK,
            table=RT_TABLE_MAIN,
        )
        for family in (4, 6)
    ]
    return [
        # A mark decides the table, and a futile look-up has a measurable cost for each marked
        # packet.
        PolicyRule(priority=PRIORITY_LAN, mask=MARK_UNROUTED_MASK, table=TABLE_LAN),
        PolicyRule(family=6, priority=PRIORITY_LAN, mask=MARK_UNROUTED_MASK, table=TABLE_LAN),
        # Without a route there, such packets meet the engine's default-deny rule.
        PolicyRule(priority=PRIORITY_EGRESS, mark=MARK_ASKED_LOCALLY, mask=_EXACT, table=TABLE_LAN),
        PolicyRule(
            priority=PRIORITY_TPROXY, mark=MARK_ENGINE, mask=MARK_KIND_MASK, table=TABLE_TPROXY
        ),
        *direct,
    ]

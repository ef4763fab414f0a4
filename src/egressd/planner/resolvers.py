"""The resolvers that the kernel sends questions to: of the clients that it routes, and of the
engine itself.

The kernel can send them to one address at a time (``dns4``, ``substitutes``), so asking a list in
turn means choosing among the servers that answer: `egressd.netd.health.dns_servers` does that.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from ipaddress import IPv4Address
from typing import Final

from egressd.model.plan import Plan
from egressd.planner.lines.address import is_hosts
from egressd.planner.registry import MARK_ASKED_DIRECTLY, MARK_DIRECT
from egressd.planner.topology import Topology, interface_mark

RESOLVERS_MAX: Final = 3
"""Servers of a list that are used: resolv.conf(5) has room for as many."""

Resolver = tuple[int, str]
"""The mark of the egress by which a resolver is asked, and its address."""


def read_resolver(key: str) -> Resolver:
    """Return the resolver that an element of ``substitutes`` is for. Raises ValueError."""
    mark, address = key.split(" . ")
    return int(mark, 16), address


def is_inner(server: str, topology: Topology) -> bool:
    """True if a resolver is on this machine, or in a LAN or local network."""
    address = IPv4Address(server)
    networks = (*topology.lan_networks, *topology.local_networks)
    return (
        address.is_loopback
        or address in topology.router_addresses
        or any(address in network for _, network in networks)
    )


def usable(
    peer_dns: Mapping[str, tuple[str, ...]], topology: Topology
) -> dict[str, tuple[str, ...]]:
    """Return the resolvers handed out by lines' peers that may be reached through a line.

    A resolver in a LAN would be a client, and as a resolver its own questions would follow its rule
    and no others; this machine, and an address that is no host's, are no resolvers for its clients.
    """

    def is_usable(server: str) -> bool:
        try:
            address = IPv4Address(server)
        except ValueError:
            return False
        return is_hosts(address) and not is_inner(server, topology)

    found = {name: tuple(filter(is_usable, servers)) for name, servers in peer_dns.items()}
    return {name: servers for name, servers in found.items() if servers}


def candidates(plan: Plan, peer_dns: Mapping[str, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    """Return the mark of each egress -> the resolvers to ask by it, the preferred one first.

    `peer_dns`: VPN line -> the resolvers that its peer hands out, as far as they are `usable`.
    """
    result = {MARK_DIRECT: plan.policy.resolvers}
    for name, egress in plan.egresses.items():
        mark = interface_mark(name, egress.number)
        if egress.is_asked_directly:
            mark = MARK_ASKED_DIRECTLY
        result[mark] = egress.resolvers or peer_dns.get(name, ()) or egress.default_resolvers
    return {mark: servers[:RESOLVERS_MAX] for mark, servers in result.items() if servers}


def asked(plan: Plan, peer_dns: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Return all resolvers that may be asked, by any egress."""
    lists = (*candidates(plan, peer_dns).values(), plan.policy.local_resolvers)
    return frozenset(server for each in lists for server in each)


def first_answering(
    servers: Mapping[int, tuple[str, ...]], silent: Container[Resolver]
) -> dict[int, str]:
    """Return the mark of each egress -> the first of its resolvers that is not `silent`, else the
    first.
    """
    return {
        mark: next((server for server in each if (mark, server) not in silent), each[0])
        for mark, each in servers.items()
    }


def passed_over(
    servers: Mapping[int, tuple[str, ...]], chosen: Mapping[int, str]
) -> Iterator[Resolver]:
    """Yield the resolvers that a later one replaces."""
    for mark, each in servers.items():
        for server in each[: each.index(chosen[mark])]:
            yield mark, server

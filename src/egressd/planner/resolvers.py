"""Which resolvers the kernel sends questions to: of the clients that it routes, and of the engine
itself.

It can send them to one address at a time (``dns4``, ``substitutes``), so that asking a list in turn
is a matter of which of its servers answer: `egressd.netd.resolvers` sees to that.
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
"""As many of a list count as resolv.conf(5) has room for."""

Resolver = tuple[int, str]
"""The mark of the way by which it is asked, and its address."""


def read_resolver(key: str) -> Resolver:
    """The resolver that an element of ``substitutes`` is for. Raises ValueError."""
    mark, address = key.split(" . ")
    return int(mark, 16), address


def is_inner(server: str, topology: Topology) -> bool:
    """Whether a resolver is this machine's own, or in a LAN or local network."""
    address = IPv4Address(server)
    networks = (*topology.lan_networks, *topology.local_networks)
    return (
        address.is_loopback
        or address in topology.router_addresses
        or any(address in network for _, network in networks)
    )


def usable(
    handed_out: Mapping[str, tuple[str, ...]], topology: Topology
) -> dict[str, tuple[str, ...]]:
    """Of the resolvers that lines' peers hand out those that may be reached through a line.

    One in a LAN would be a client, which as a resolver would have its own questions go by its rule
    and no others; this machine, and what is no host's address, are no resolvers for its clients.
    """

    def is_usable(server: str) -> bool:
        try:
            address = IPv4Address(server)
        except ValueError:
            return False
        return is_hosts(address) and not is_inner(server, topology)

    found = {name: tuple(filter(is_usable, servers)) for name, servers in handed_out.items()}
    return {name: servers for name, servers in found.items() if servers}


def candidates(plan: Plan, handed_out: Mapping[str, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    """The mark of each way out -> the resolvers to ask by it, the preferred one first.

    `handed_out`: VPN line -> those that its peer hands out, as far as they are `usable`.
    """
    result = {MARK_DIRECT: plan.floor.resolvers}
    for name, egress in plan.egresses.items():
        mark = interface_mark(name, egress.number)
        if egress.is_asked_directly:
            mark = MARK_ASKED_DIRECTLY
        result[mark] = egress.resolvers or handed_out.get(name, ()) or egress.default_resolvers
    return {mark: servers[:RESOLVERS_MAX] for mark, servers in result.items() if servers}


def asked(plan: Plan, handed_out: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """All that may be asked, by whichever way."""
    lists = (*candidates(plan, handed_out).values(), plan.floor.local_resolvers)
    return frozenset(server for each in lists for server in each)


def first_answering(
    servers: Mapping[int, tuple[str, ...]], silent: Container[Resolver]
) -> dict[int, str]:
    """The mark of each way -> the first of its resolvers that is not `silent`, else the first."""
    return {
        mark: next((server for server in each if (mark, server) not in silent), each[0])
        for mark, each in servers.items()
    }


def passed_over(
    servers: Mapping[int, tuple[str, ...]], chosen: Mapping[int, str]
) -> Iterator[Resolver]:
    """Those that another is asked in place of."""
    for mark, each in servers.items():
        for server in each[: each.index(chosen[mark])]:
            yield mark, server

"""The clients whose known flows may take the fast path through the machine, and its next hops.

The fast path (`egressd.netd.kernel.fast_path`) bypasses nftables and policy routing, so it is for
the plain cases alone: a client with a rule without limits, next to the machine, that leaves by a
WAN or a VPN line. Packets of other clients are decided one by one, and so are those of flows whose
mark differs from the client's. `egressd.planner.fast_networks` has the clients of CIDR rules.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network, collapse_addresses
from itertools import islice
from typing import Final, NamedTuple

from egressd.model.device import InterfaceRoles
from egressd.model.facts import Facts, Interface
from egressd.model.plan import Plan, is_routed_member
from egressd.planner.flatten import spans
from egressd.planner.groups import Choice, member_mark
from egressd.planner.open_egresses import open_egresses
from egressd.planner.registry import (
    MARK_DIRECT,
    flow_mark,
    is_routed,
)
from egressd.planner.shaping import is_limited
from egressd.planner.topology import Topology, connected, interface_mark, is_line, uplink

APART_MAX: Final = 8
"""Networks that may be exceptions to one `FastEgress`."""
WAYS_MAX: Final = 4096
"""Ways of clients that have an egress: the room of the kernel's map."""
_ANYWHERE: Final = IPv4Network("0.0.0.0/0")


class FastWay(NamedTuple):
    """The two marks that decide the egress of a packet of a known flow."""

    client: int
    """The mark that the client has now: its target's."""
    flow: int
    """The conntrack mark of the flow."""


class FastEgress(NamedTuple):
    """The fast path's egress of a way."""

    interface: int
    """The index of the outgoing interface."""
    gateway: IPv4Address | None
    """None if the interface has no frames, and so no neighbours."""
    address: IPv4Address
    """This machine's address there that new flows are translated to. Flows with another source take
    the slow path."""
    apart: tuple[IPv4Network, ...]
    """Destinations that the gateway does not lead to, at most `APART_MAX` networks."""
    has_frames: bool = True
    """False if the interface's packets begin with the IP header."""
    has_other_mtu: bool = False
    """True if a packet may be too large for the side that it leaves by."""


class Place(NamedTuple):
    """A client's mark, and the index of the interface that it is behind."""

    mark: int
    interface: int
    mac: str = ""
    """The hardware address of the only device that may use the client's address; empty for any."""


class Neighbourhood:
    """The LANs, and the addresses that are next to the machine there. Interfaces that are
    `occupied`, given by their indexes, are left out.
    """

    def __init__(self, facts: Facts, topology: Topology, occupied: Collection[int] = ()) -> None:
        lans = [lan for lan in plain_lans(facts, topology) if lan.index not in occupied]
        self.indexes = {lan.index for lan in lans}
        """Indexes of the LANs."""
        owners: dict[IPv4Network, int] = {}
        # The networks of LANs that are left out belong to no other one around them.
        for lan in (facts.interfaces[name] for name in topology.lans if name in facts.interfaces):
            index = lan.index if lan.index in self.indexes else 0
            for each in lan.addresses:
                is_shared = owners.get(each.network, index) != index
                owners[each.network] = 0 if is_shared else index
        # Hosts behind another router, or elsewhere, are not resolved by ARP on the LAN.
        for route in facts.routes:
            is_near = route.gateway is None and route.interface in topology.lans
            if route.destination != _ANYWHERE and not is_near:
                owners[route.destination] = 0
        self.spans = tuple(spans(owners))
        """The addresses that are next to the machine, with the index of the LAN that they are on;
        0 for those that are on none, or on several."""
        self._firsts = [span.first for span in self.spans]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Neighbourhood) and self.spans == other.spans

    __hash__ = None  # type: ignore[assignment]

    def index_of(self, address: str) -> int:
        """Return the index of the LAN where an address is next to the machine; 0 for none, or
        several.
        """
        number = int(IPv4Address(address))
        at = bisect_right(self._firsts, number) - 1
        return self.spans[at].value if at >= 0 and number <= self.spans[at].last else 0


def plain_lans(facts: Facts, topology: Topology) -> list[Interface]:
    """Return the LANs that known flows may come in by."""
    found = (facts.interfaces.get(name) for name in topology.lans)
    return [lan for lan in found if lan is not None and _is_plain(lan)]


def place(
    address: str, plan: Plan, neighbourhood: Neighbourhood, groups: Collection[int] = ()
) -> Place | None:
    """Return the place of a client of the plan if its flows may take the fast path, else None.
    `groups`: the marks of `routed_groups`.
    """
    mark = plan.hosts.get(address, 0) if plan.policy.is_ruled else 0
    if not may_be_fast(mark, groups):
        return None
    limit = plan.limits.get(address)
    if limit is None or is_limited(limit):
        return None
    index = neighbourhood.index_of(address)
    return Place(mark, index, plan.bindings.get(address, "")) if index else None


def may_be_fast(mark: int, groups: Collection[int]) -> bool:
    """Return whether known flows of a target's clients may take the fast path, given its mark.
    `groups`: the marks of `routed_groups`.
    """
    return is_routed(mark) or mark in groups


def routed_groups(plan: Plan) -> frozenset[int]:
    """Return the marks of the groups with members that the kernel routes."""
    return frozenset(group.mark for group in plan.groups.values() if group.routed_members)


def fast_egresses(
    plan: Plan,
    facts: Facts,
    topology: Topology,
    roles: InterfaceRoles,
    choices: Mapping[str, Choice],
    *,
    outdated: Collection[str] = (),
) -> dict[FastWay, FastEgress]:
    """Return the egress of each way. Egresses that are not plain enough are left out, and so are
    the last groups' if there are more than `WAYS_MAX`.

    `choices`: group key -> the members that flows may stay with; `outdated`: VPN lines that no
    client's packets may leave by.
    """
    of_mark = _egresses_by_mark(plan, facts, topology, roles, outdated)
    epoch = plan.whitelist.epoch
    ways = {FastWay(mark, flow_mark(mark, epoch)): egress for mark, egress in of_mark.items()}
    for name, group in plan.groups.items():
        living = choices[name].living if name in choices else ()
        for key in filter(is_routed_member, living):
            mark = member_mark(plan, key)
            if mark in of_mark:
                ways[FastWay(group.mark, flow_mark(mark, epoch))] = of_mark[mark]
    return dict(islice(ways.items(), WAYS_MAX))


def _egresses_by_mark(
    plan: Plan,
    facts: Facts,
    topology: Topology,
    roles: InterfaceRoles,
    outdated: Collection[str],
) -> dict[int, FastEgress]:
    mtus = {facts.interfaces[name].mtu for name in topology.lans if name in facts.interfaces}
    sources = dict(topology.sources)
    found = {}
    for mark, name, gateway, apart in (
        *_of_interfaces(plan, facts, topology, roles, outdated),
        *_of_main_table(facts, topology),
    ):
        interface = facts.interfaces[name]
        networks = tuple(collapse_addresses(apart))
        address = sources.get(name) or masquerade_address(interface, gateway)
        if interface.has_frames:
            is_plain = _is_plain(interface) and gateway is not None
        else:
            is_plain = interface.is_up
        if is_plain and address is not None and len(networks) <= APART_MAX:
            found[mark] = FastEgress(
                interface.index,
                gateway,
                address,
                networks,
                interface.has_frames,
                # The far end of PPP may send more than the MTU (RFC 1661, 6.1).
                has_other_mtu=mtus != {interface.mtu} or not interface.has_frames,
            )
    return found


def masquerade_address(interface: Interface, gateway: IPv4Address | None) -> IPv4Address | None:
    """Return the address that ``masquerade`` gives packets to `gateway`: the first one in the
    gateway's network, else the first one (``inet_select_addr`` in the kernel's net/ipv4/devinet.c).
    None if it would be another interface's.
    """
    chosen = [each for each in interface.addresses if each.ip not in interface.passive]
    near = [each for each in chosen if gateway is not None and gateway in each.network]
    return next((each.ip for each in (*near, *chosen)), None)


_Found = tuple[int, str, IPv4Address | None, Iterable[IPv4Network]]
"""Mark, interface, gateway, and networks that the gateway does not lead to."""


def _of_interfaces(
    plan: Plan,
    facts: Facts,
    topology: Topology,
    roles: InterfaceRoles,
    outdated: Collection[str],
) -> Iterator[_Found]:
    for name in open_egresses(plan, topology, outdated):
        if name in topology.wans or is_line(name):
            found = uplink(name, facts, roles)
            if found.has_route:
                mark = interface_mark(name, plan.egresses[name].number)
                yield mark, name, found.gateway, connected(name, facts)


def _of_main_table(facts: Facts, topology: Topology) -> Iterator[_Found]:
    every = (route for route in facts.routes if route.destination == _ANYWHERE)
    defaults = sorted(every, key=lambda route: route.metric)
    if not defaults or (len(defaults) > 1 and defaults[0].metric == defaults[1].metric):
        return
    best = defaults[0]
    if best.interface in topology.wans:
        others = [r.destination for r in facts.routes if r.destination != _ANYWHERE]
        yield MARK_DIRECT, best.interface, best.gateway, others


def _is_plain(interface: Interface) -> bool:
    """True if it is up and its neighbours are resolved by ARP."""
    return interface.is_up and not interface.is_loopback and not interface.is_point_to_point

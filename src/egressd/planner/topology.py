"""The roles of the machine's interfaces for egressd: LAN, WAN, or neither."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

import msgspec

from egressd.model.device import InterfaceRoles
from egressd.model.facts import Facts, Interface, Route, Route6
from egressd.model.plan import Egress
from egressd.planner.registry import (
    HELPER_INTERFACES,
    egress_mark,
    inbound_number,
    inbound_place,
    line_mark,
)

_LINE = re.compile(r"(l2tp|pptp)_")
_LOCAL = re.compile(
    r"(docker\d+|docker_gwbridge|br-[0-9a-f]{12}|virbr\d+|lxcbr\d+|lxdbr\d+|incusbr\d+|cni\d+"
    r"|cni-podman\d+|podman\d+)\Z"
)
"""Bridges that Docker, libvirt, LXC, LXD, Incus and Podman make for networks of this machine."""
_WIREGUARD = "wireguard"
"""rtnetlink's name for the kind of interface."""
_CONTAINERS = re.compile(r"docker\d|br-[0-9a-f]{12}\Z|virbr\d|lxc|lxd|veth[0-9a-f]{6}|cni|podman\d")
"""Bridges and ports that container and VM managers make: never chosen as a LAN automatically."""

_CLIENT_SPACE = tuple(
    IPv4Network(n) for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)
"""Private (RFC 1918) and shared (RFC 6598) address space: the ranges of LAN clients."""

_DEFAULT = IPv4Network("0.0.0.0/0")
_HOST = 32
"""Prefix length of a single address, which is no network."""
_DEFAULT6 = IPv6Network("::/0")


class Uplink(msgspec.Struct, frozen=True, kw_only=True):
    """An egress by one interface. Without a route it blocks."""

    interface: str
    gateway: IPv4Address | None = None
    has_route: bool = False
    """True if traffic can be sent: the interface is up, with a gateway or point-to-point."""


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """The current roles of the machine's interfaces."""

    lans: tuple[str, ...] = ()
    lan_networks: tuple[tuple[str, IPv4Network], ...] = ()
    """Pairs of a LAN interface and a source network that belongs there."""
    stacked: tuple[tuple[str, str], ...] = ()
    """Pairs of LANs where the second's packets pass the first's interface too, as a VLAN's pass its
    parent's."""
    wans: tuple[str, ...] = ()
    seen_wans: tuple[str, ...] = ()
    """All WANs ever seen, in the order of their numbers (see `inbound`). One that is renamed gets a
    further number, and keeps the old one."""
    local: tuple[str, ...] = ()
    """Interfaces of networks that are neither LAN nor WAN: containers, virtual machines, clients of
    a VPN server. egressd leaves hosts without a rule there alone."""
    local_networks: tuple[tuple[str, IPv4Network], ...] = ()
    """Pairs of such an interface and a source network that belongs there."""
    multicast: bool = False
    """True if multicast traffic that other programs route reaches the LANs."""
    direct_exits: tuple[str, ...] = ()
    """Interfaces that DIRECT traffic may leave by: all that the main table uses, except lines."""
    routable: tuple[str, ...] = ()
    """Interfaces that traffic can be sent out by: see `uplink`."""
    missing: tuple[str, ...] = ()
    """LANs that the configuration names and that do not exist, or have no address."""
    known: tuple[str, ...] = ()
    """Interfaces with an IPv4 address whose role is known, be it none. An interface without a role
    may be a missing LAN under another name: then it is left out."""
    fixed_sources: tuple[tuple[str, IPv4Address], ...] = ()
    """Pairs of an interface and the configured source of clients' packets that leave by it."""
    sources: tuple[tuple[str, IPv4Address], ...] = ()
    """The pairs in `fixed_sources` whose interface has the address. Without it the kernel chooses
    one of the interface's own."""
    narrow: tuple[str, ...] = ()
    """Interfaces with a smaller MTU than the widest LAN (PPPoE's, for one)."""
    unheard: tuple[str, ...] = ()
    """Interfaces behind which hosts may pose as this machine's IPv6 router: LANs, local networks,
    and the interfaces that these are stacked on."""
    routers6: tuple[tuple[str, IPv6Address], ...] = ()
    """Pairs of such an interface that is a WAN too, and a router whose advertisements count
    there."""
    router_addresses: tuple[IPv4Address, ...] = ()
    outer_addresses: tuple[tuple[str, IPv4Address | IPv6Address], ...] = ()
    """Pairs of an interface that is no LAN, or a WAN too, and an address of it: packets that this
    machine sends from the address leave by that interface. An address that a LAN has as well is the
    LAN's; of two interfaces with one address it is the first's."""
    twin_addresses: tuple[IPv4Address | IPv6Address, ...] = ()
    """Addresses that several interfaces have, as tunnels of two providers may. The kernel takes
    each for the first one's (fib_frontend.c, __inet_dev_addr_type)."""

    @property
    def without_router6(self) -> tuple[str, ...]:
        """The interfaces in `unheard` where no router's advertisements count at all."""
        heard = {name for name, _ in self.routers6}
        return tuple(name for name in self.unheard if name not in heard)


def is_line(interface: str) -> bool:
    """True if the interface name is a VPN line's."""
    return _LINE.match(interface) is not None


def interface_mark(interface: str, number: int) -> int:
    """Return the mark of traffic that leaves by `interface`, whose egress has that number."""
    return line_mark(number) if is_line(interface) else egress_mark(number)


def recalled(
    lansrc: Iterable[str],
    inmark: Mapping[str, str],
    outside: Iterable[str],
    localif: Collection[str] = (),
) -> Topology:
    """Return the known LANs and WANs at the time when these elements of an earlier table were
    loaded.

    A WAN that had no route then is only in `outside`: it gets a new number. Raises ValueError if
    the elements are not egressd's.
    """
    networks = []
    for key in lansrc:
        name, network = key.split(" . ")
        if name not in localif:
            networks.append((name.strip('"'), IPv4Network(network)))
    places = {}
    for name, mark in inmark.items():
        if (place := inbound_place(int(mark, 16))) is not None:
            places[place] = name.strip('"')
    # WANs of other numbers are left out: no interface has an empty name.
    numbered = tuple(places.get(place, "") for place in range(max(places, default=-1) + 1))
    others = sorted(name for quoted in outside if not is_line(name := quoted.strip('"')))
    return Topology(
        lans=tuple(dict.fromkeys(name for name, _ in networks)),
        lan_networks=tuple(networks),
        seen_wans=_seen(numbered, tuple(others)),
    )


def discover(facts: Facts, roles: InterfaceRoles, before: Topology | None = None) -> Topology:
    """Give each interface its role. `before` is the result of the previous call.

    Configured roles are used unchanged, even for absent interfaces, so that the default-deny rules
    exist before the interface does. Otherwise, a WAN is an interface of a default route in the main
    table, and a LAN one that has a private address and is no WAN. If that leaves no LAN and a WAN's
    own address is private, the device is one-armed: that WAN is the LAN too.

    A found LAN that has lost its address, or is gone, stays a LAN with its previous networks,
    because its clients may still send, unless another has them now; and a WAN that has lost its
    default route becomes none.
    """
    before = before or Topology()
    present = facts.interfaces
    defaults = [r for r in facts.routes if r.destination == _DEFAULT and not is_line(r.interface)]
    found_wans = dict.fromkeys(r.interface for r in sorted(defaults, key=lambda r: r.metric))
    wans = roles.wan or tuple(name for name in found_wans if name not in roles.lan)
    no_lans = {*wans, *(name for name in before.seen_wans if name not in before.lans)}
    no_lans |= {*roles.local, *(i.name for i in present.values() if _looks_local(i, facts))}
    found_lans = [i.name for i in present.values() if i.name not in no_lans and _looks_like_lan(i)]
    # A one-armed device stays one when another interface comes up.
    both = {name for name in before.lans if name in before.seen_wans}
    found_lans += [n for n in before.lans if n not in found_lans and (n in both or n not in wans)]
    lans = roles.lan or (
        tuple(found_lans)
        or tuple(name for name in wans if name in present and _has_client_address(present[name]))
    )
    networks: dict[tuple[str, IPv4Network], None] = {}
    lost = set()
    for name in lans:
        addresses = present[name].addresses if name in present else ()
        networks |= {(name, address.network): None for address in addresses}
        if not addresses:
            lost.add(name)
    elsewhere = {network for _, network in networks}
    networks |= {
        (name, network): None
        for name, network in before.lan_networks
        if name in lost and network not in elsewhere
    }
    for route in facts.routes:
        # Networks that a one-armed device has a gateway for are outside.
        is_outside = route.gateway is not None and route.interface in wans
        if route.interface in lans and route.destination != _DEFAULT and not is_outside:
            networks[route.interface, route.destination] = None
    local = tuple(
        name
        for name, interface in present.items()
        if name not in (*lans, *wans, *before.seen_wans)
        and (name in roles.local or _looks_local(interface, facts))
    )
    routed = dict.fromkeys(r.interface for r in facts.routes if r.interface not in lans)
    exits = dict.fromkeys(wans)
    inner = {*local, *(name for name, i in present.items() if i.is_loopback)}
    exits |= {name: None for name in routed if not is_line(name) and name not in inner}
    unheard = dict.fromkeys((*lans, *local))
    unheard |= {n: None for lan in lans for n in _beneath(lan, present) if n not in wans}
    # By IPv6 alone: a tunnel, for example.
    routed6 = (r.interface for r in facts.routes6 if r.destination == _DEFAULT6)
    exits |= {name: None for name in routed6 if name not in {*unheard, *inner}}
    missing = tuple(n for n in roles.lan if n not in present or not present[n].addresses)
    addressed = [name for name, i in present.items() if i.addresses]
    known_roles = {*lans, *wans, *before.seen_wans}
    widest = max((present[name].mtu for name in lans if name in present), default=0)
    own = (a.ip for i in present.values() if not i.is_loopback for a in i.addresses)
    outer_addresses = tuple(_outer_addresses(present, lans, wans))
    renamed = _renamed(outer_addresses, before)
    sources = {**roles.sources, **roles.shared}
    return Topology(
        lans=lans,
        lan_networks=tuple(networks),
        stacked=tuple(
            (lower, upper)
            for upper in lans
            for lower in _beneath(upper, present)
            if lower in lans and lower != upper
        ),
        wans=wans,
        seen_wans=_seen(before.seen_wans, (*wans, *renamed)),
        local=local,
        local_networks=tuple(_local_networks(local, facts, [network for _, network in networks])),
        multicast=roles.multicast,
        direct_exits=tuple(exits),
        routable=tuple(name for name in present if uplink(name, facts, roles).has_route),
        missing=missing,
        known=tuple(
            name
            for name in addressed
            if not missing or name in known_roles or not _may_be_lan(present[name])
        ),
        fixed_sources=tuple(sources.items()),
        sources=tuple(
            (name, address)
            for name, address in sources.items()
            if name in present and any(address == each.ip for each in present[name].addresses)
        ),
        unheard=tuple(unheard),
        routers6=tuple((n, each) for n, each in roles.gateways6.items() if n in lans and n in wans),
        narrow=tuple(name for name, i in present.items() if i.mtu < widest and name not in lans),
        router_addresses=tuple(dict.fromkeys(own)),
        outer_addresses=outer_addresses,
        twin_addresses=tuple(_twins(present.values())),
    )


def uplink(name: str, facts: Facts, roles: InterfaceRoles) -> Uplink:
    """Return the uplink by interface `name`, which need not exist."""
    interface = facts.interfaces.get(name)
    if interface is None or not interface.is_up or not interface.addresses:
        return Uplink(interface=name)
    if interface.is_point_to_point:
        # A PPP link counts once its peer is known: before that pppd only tries an address.
        online = not is_line(name) or bool(interface.peers)
        return Uplink(interface=name, has_route=online)
    gateway = roles.gateways.get(name)
    if gateway is None:
        candidates = [
            r
            for r in facts.routes
            if r.interface == name and r.destination == _DEFAULT and r.gateway
        ]
        if candidates:
            gateway = min(candidates, key=lambda r: r.metric).gateway
    return Uplink(interface=name, gateway=gateway, has_route=gateway is not None)


def routes_by(name: str, facts: Facts) -> Iterator[Route]:
    """Yield the main table's routes by interface `name`: the preferred one to each network."""
    preferred: dict[IPv4Network, Route] = {}
    for route in sorted(facts.routes, key=lambda route: route.metric):
        if route.interface == name:
            preferred.setdefault(route.destination, route)
    yield from preferred.values()


def connected(name: str, facts: Facts) -> tuple[IPv4Network, ...]:
    """Return the networks that the main table has directly behind interface `name`, whose hosts
    need no gateway.
    """
    interface = facts.interfaces.get(name)
    if interface is None or interface.is_point_to_point or is_line(name):
        return ()
    found = (
        route.destination
        for route in facts.routes
        if route.interface == name and route.gateway is None and route.destination != _DEFAULT
    )
    return tuple(dict.fromkeys(found))


def uplinks6(name: str, facts: Facts) -> tuple[Route6, ...]:
    """Return the routes of this machine's IPv6 packets by interface `name`: its networks in the
    main table, and the preferred default route. None for VPN lines, which carry no IPv6.
    """
    interface = facts.interfaces.get(name)
    if interface is None or not interface.is_up or is_line(name):
        return ()
    own = sorted((r for r in facts.routes6 if r.interface == name), key=lambda r: r.metric)
    near = {r.destination: r for r in reversed(own) if r.destination != _DEFAULT6 and not r.gateway}
    return (*near.values(), *[r for r in own if r.destination == _DEFAULT6][:1])


def overlaps(facts: Facts, topology: Topology) -> Iterator[tuple[str, IPv4Network, str]]:
    """Yield interfaces that are no LAN, with the network of an address of theirs that a LAN has
    too, and that LAN. Packets for the one go to the other.
    """
    for name, interface in facts.interfaces.items():
        if name in topology.lans or interface.is_loopback:
            continue
        for network in dict.fromkeys(address.network for address in interface.addresses):
            for lan, other in topology.lan_networks:
                if network.prefixlen < _HOST and network.overlaps(other):
                    yield name, network, lan
                    break


def inbound(topology: Topology) -> dict[str, Egress]:
    """Return for each WAN the egress of answers to its inbound connections.

    It keeps its number independent of other WANs and of rules that name it, because connections
    bear it.
    """
    numbered = _numbered(topology)
    return {name: numbered[name] for name in topology.wans}


def former(topology: Topology) -> dict[str, Egress]:
    """Return for each interface that was a WAN and has an address, but is none now, the egress of
    packets from its addresses.

    The WAN was renamed, or lost its default route, or another configuration does not name it. Far
    ends continue to send to its addresses, and the main table would answer by another WAN.
    """
    addressed = {name for name, _ in topology.outer_addresses} - {*topology.wans}
    return {name: egress for name, egress in _numbered(topology).items() if name in addressed}


def _numbered(topology: Topology) -> dict[str, Egress]:
    seen = _seen(topology.seen_wans, topology.wans)
    return {name: Egress(number=inbound_number(place)) for place, name in enumerate(seen)}


def _seen(before: tuple[str, ...], wans: tuple[str, ...]) -> tuple[str, ...]:
    """Return the WANs seen before, each in its place, and then the new ones."""
    return (*before, *(name for name in wans if name not in before))


def _beneath(name: str, present: Mapping[str, Interface]) -> Iterable[str]:
    """Return the interfaces that packets of interface `name` pass as well: the one it is stacked
    on, its ports if it is a bridge, and the interfaces beneath those."""
    found: dict[int, str] = {}
    above = [present[name]] if name in present else []
    while above:
        parents, bridges = {i.parent for i in above}, {i.index for i in above}
        above = [
            i
            for i in present.values()
            if i.index not in found and (i.index in parents or i.master in bridges)
        ]
        found |= {i.index: i.name for i in above}
    return found.values()


def _looks_local(interface: Interface, facts: Facts) -> bool:
    """True if it is a local network by itself. A WireGuard interface is one if it leads to this
    machine's VPN clients: one that has a default route in any table is an uplink of clients and
    this machine.
    """
    if interface.kind == _WIREGUARD:
        return bool(interface.addresses) and interface.name not in facts.uplinks
    return _LOCAL.match(interface.name) is not None


def _local_networks(
    local: Iterable[str], facts: Facts, lan_networks: Collection[IPv4Network]
) -> Iterator[tuple[str, IPv4Network]]:
    """Yield the networks that no LAN has, each once."""
    taken: set[IPv4Network] = set()
    for name in local:
        interface = facts.interfaces[name]
        routed = (r.destination for r in facts.routes if r.interface == name)
        for network in (*(a.network for a in interface.addresses), *routed):
            is_free = not any(network.overlaps(other) for other in lan_networks)
            if is_free and network != _DEFAULT and network not in taken:
                taken.add(network)
                yield name, network


def _outer_addresses(
    present: Mapping[str, Interface], lans: Collection[str], wans: Collection[str]
) -> Iterator[tuple[str, IPv4Address | IPv6Address]]:
    inner = [
        i for i in present.values() if i.is_loopback or (i.name in lans and i.name not in wans)
    ]
    taken = {address for interface in inner for address in _own(interface)}
    for interface in sorted(present.values(), key=lambda i: i.name not in wans):
        if interface in inner:
            continue
        for address in _own(interface):
            if address not in taken:
                taken.add(address)
                yield interface.name, address


def _twins(interfaces: Iterable[Interface]) -> Iterator[IPv4Address | IPv6Address]:
    count = Counter(address for each in interfaces for address in {*_own(each)})
    return (address for address, number in count.items() if number > 1)


def _renamed(
    outer: Iterable[tuple[str, IPv4Address | IPv6Address]], before: Topology
) -> tuple[str, ...]:
    """Return the interfaces with an address that a WAN had before."""
    had = {address for name, address in before.outer_addresses if name in before.seen_wans}
    return tuple(dict.fromkeys(name for name, address in outer if address in had))


def _own(interface: Interface) -> tuple[IPv4Address | IPv6Address, ...]:
    return (*(address.ip for address in interface.addresses), *interface.addresses6)


def _may_be_lan(interface: Interface) -> bool:
    """True if everything but its addresses allows it to be a LAN."""
    return (
        not interface.is_loopback
        and not interface.is_point_to_point
        and not interface.master
        and interface.name not in HELPER_INTERFACES
        and not is_line(interface.name)
        and not _CONTAINERS.match(interface.name)
    )


def _looks_like_lan(interface: Interface) -> bool:
    return _may_be_lan(interface) and _has_client_address(interface)


def is_client_space(address: IPv4Address) -> bool:
    """True if it is an address in the ranges of LANs."""
    return any(address in space for space in _CLIENT_SPACE)


def _has_client_address(interface: Interface) -> bool:
    return any(is_client_space(address.ip) for address in interface.addresses)

"""What the machine's interfaces are to egressd: LAN, WAN, or neither."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network

import msgspec

from egressd.model.device import Ports
from egressd.model.facts import Facts, Interface
from egressd.model.plan import Egress
from egressd.planner.registry import (
    HELPER_INTERFACES,
    egress_mark,
    line_mark,
    unplanned_egress_number,
)

_LINE = re.compile(r"(l2tp|pptp)_")
_CONTAINERS = re.compile(r"docker\d|br-[0-9a-f]{12}\Z|virbr\d|lxc|lxd|veth[0-9a-f]{6}|cni|podman\d")
"""Bridges and ports that container and VM managers make: never taken for a LAN by themselves."""

_CLIENT_SPACE = tuple(
    IPv4Network(n) for n in ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10")
)
"""Private (RFC 1918) and shared (RFC 6598) address space: where LAN clients live."""

_DEFAULT = IPv4Network("0.0.0.0/0")


class Uplink(msgspec.Struct, frozen=True, kw_only=True):
    """A way out by one interface. Without a route it blocks."""

    interface: str
    gateway: IPv4Address | None = None
    has_route: bool = False
    """Whether traffic can be sent: up, and with a gateway or point-to-point."""


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    """The roles of the machine's interfaces at the moment."""

    lans: tuple[str, ...] = ()
    lan_networks: tuple[tuple[str, IPv4Network], ...] = ()
    """Which source networks belong on which LAN interface."""
    wans: tuple[str, ...] = ()
    direct_exits: tuple[str, ...] = ()
    """Interfaces that DIRECT traffic may leave by: all but lines that the main table uses."""
    routable: tuple[str, ...] = ()
    """Interfaces that traffic can be sent out by: see `uplink`."""
    router_addresses: tuple[IPv4Address, ...] = ()


def is_line(interface: str) -> bool:
    """Whether the interface name is a VPN line's."""
    return _LINE.match(interface) is not None


def interface_mark(interface: str, number: int) -> int:
    """The mark of what leaves by `interface`, whose egress has that number."""
    return line_mark(number) if is_line(interface) else egress_mark(number)


def discover(facts: Facts, ports: Ports) -> Topology:
    """Give each interface its role.

    Configured roles are taken as they are, present or not, so that a floor exists before
    the interface does. Left to itself, a WAN is what the main table has a default route by,
    and a LAN what has a private address and is no WAN. If that leaves no LAN and a WAN's
    own address is private, the device is one-armed: that WAN is the LAN too.
    """
    present = facts.interfaces
    defaults = [r for r in facts.routes if r.destination == _DEFAULT and not is_line(r.interface)]
    found_wans = dict.fromkeys(r.interface for r in sorted(defaults, key=lambda r: r.metric))
    wans = ports.wan or tuple(name for name in found_wans if name not in ports.lan)
    lans = ports.lan or (
        tuple(i.name for i in present.values() if i.name not in wans and _looks_like_lan(i))
        or tuple(name for name in wans if name in present and _has_client_address(present[name]))
    )
    networks: dict[tuple[str, IPv4Network], None] = {}
    for name in lans:
        for address in present[name].addresses if name in present else ():
            networks[name, address.network] = None
    for route in facts.routes:
        if route.interface in lans and route.destination != _DEFAULT:
            networks[route.interface, route.destination] = None
    routed = dict.fromkeys(r.interface for r in facts.routes if r.interface not in lans)
    exits = dict.fromkeys(wans)
    exits |= {n: None for n in routed if not is_line(n) and not _is_loopback(present.get(n))}
    addresses = (a.ip for i in present.values() if not i.is_loopback for a in i.addresses)
    return Topology(
        lans=lans,
        lan_networks=tuple(networks),
        wans=wans,
        direct_exits=tuple(exits),
        routable=tuple(name for name in present if uplink(name, facts, ports).has_route),
        router_addresses=tuple(dict.fromkeys(addresses)),
    )


def uplink(name: str, facts: Facts, ports: Ports) -> Uplink:
    """How traffic leaves by interface `name`, which need not exist."""
    interface = facts.interfaces.get(name)
    if interface is None or not interface.is_up or not interface.addresses:
        return Uplink(interface=name)
    if interface.is_point_to_point:
        # A PPP link counts once its peer is known: before that pppd only tries an address.
        online = not is_line(name) or bool(interface.peers)
        return Uplink(interface=name, has_route=online)
    gateway = ports.gateways.get(name)
    if gateway is None:
        candidates = [
            r
            for r in facts.routes
            if r.interface == name and r.destination == _DEFAULT and r.gateway
        ]
        if candidates:
            gateway = min(candidates, key=lambda r: r.metric).gateway
    return Uplink(interface=name, gateway=gateway, has_route=gateway is not None)


def with_unplanned(egresses: Mapping[str, Egress], topology: Topology) -> dict[str, Egress]:
    """`egresses`, and one for each other WAN, so that it answers what it brought in."""
    result = {
        name: Egress(number=unplanned_egress_number(place))
        for place, name in enumerate(topology.wans)
    }
    return {**result, **egresses}


def _looks_like_lan(interface: Interface) -> bool:
    return (
        not interface.is_loopback
        and not interface.is_point_to_point
        and not interface.master
        and interface.name not in HELPER_INTERFACES
        and not is_line(interface.name)
        and not _CONTAINERS.match(interface.name)
        and _has_client_address(interface)
    )


def _is_loopback(interface: Interface | None) -> bool:
    return interface is not None and interface.is_loopback


def _has_client_address(interface: Interface) -> bool:
    return any(a.ip in space for a in interface.addresses for space in _CLIENT_SPACE)

"""The machine's current interfaces, addresses and routes. Read by netd only."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Address, IPv6Network
from typing import Literal

import msgspec


class Interface(msgspec.Struct, frozen=True, kw_only=True):
    """A network interface as reported by the kernel."""

    name: str
    index: int
    kind: str = ""
    """rtnetlink's ``IFLA_INFO_KIND`` (``bridge``, ``veth``, ``ifb``, ``ppp``, …); may be empty."""
    is_up: bool = False
    """True if it is administratively up and has a carrier (``IFF_UP`` and ``IFF_LOWER_UP``)."""
    is_loopback: bool = False
    is_point_to_point: bool = False
    """True with ``IFF_POINTOPOINT`` or ``IFF_NOARP``: a route needs no gateway."""
    has_frames: bool = True
    """False if its packets begin with the IP header, as those of PPP do (``dev_is_mac_header_xmit``
    in the kernel's include/linux/if_arp.h)."""
    mtu: int = 1500
    """Bytes of the largest packet that it sends."""
    master: int = 0
    """Index of the bridge or bond that it belongs to; 0 for none."""
    parent: int = 0
    """Index of the interface that it is stacked on, as a VLAN is; 0 for none in this namespace."""
    addresses: tuple[IPv4Interface, ...] = ()
    """IPv4 addresses with their prefix lengths."""
    passive: tuple[IPv4Address, ...] = ()
    """Addresses that the kernel never chooses as a source by itself: secondary ones
    (``IFA_F_SECONDARY``), and those that are not valid beyond the link."""
    addresses6: tuple[IPv6Address, ...] = ()
    """IPv6 addresses that are valid beyond the link (``RT_SCOPE_UNIVERSE``)."""
    peers: tuple[IPv4Address, ...] = ()
    """The far ends of its point-to-point addresses, if they differ from the local one."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """An IPv4 unicast route of the main table."""

    destination: IPv4Network
    interface: str
    gateway: IPv4Address | None = None
    metric: int = 0


class ForeignRule(msgspec.Struct, frozen=True, kw_only=True):
    """A policy rule that another program made."""

    family: Literal[4, 6] = 4
    priority: int
    iif: str = ""
    """The interface that it is limited to; ``lo`` stands for this machine's own packets."""
    is_vrf: bool = False
    """True if it only concerns interfaces of a VRF (``FRA_L3MDEV``)."""


class Route6(msgspec.Struct, frozen=True, kw_only=True):
    """An IPv6 unicast route of the main table, link-local ones excluded."""

    destination: IPv6Network
    interface: str
    gateway: IPv6Address | None = None
    metric: int = 0


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot of the machine's network."""

    interfaces: dict[str, Interface] = {}
    """Interface name -> interface."""
    routes: tuple[Route, ...] = ()
    routes6: tuple[Route6, ...] = ()
    policy_rules: tuple[ForeignRule, ...] = ()
    """Policy rules other than egressd's and the kernel's own three of each family."""
    uplinks: frozenset[str] = frozenset()
    """WireGuard interfaces that carry the default route of some table."""

"""Facts about the device from the configuration file, beyond the facts read from the machine."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Annotated

import msgspec
from msgspec import Meta

from egressd.model.forms import Address, Domain


class InterfaceRoles(msgspec.Struct, frozen=True, kw_only=True):
    """The interfaces that face the clients, the outside, or neither.

    If ``lan`` or ``wan`` is empty, it is derived from the machine's addresses and default routes.
    """

    lan: tuple[str, ...] = ()
    wan: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    """Additional networks of this machine, beside those that are found: containers, virtual
    machines, clients of a VPN server."""
    multicast: bool = False
    """True if multicast traffic that other programs route reaches the LANs."""
    gateways: dict[str, IPv4Address] = {}
    """Gateway of a WAN that has no default route in the main table."""
    sources: dict[str, IPv4Address] = {}
    """Interface -> the address that clients' packets get there while the interface has it."""
    shared: dict[str, IPv4Address] = {}
    """WAN -> an address to the same effect, which moves between two boxes."""
    gateways6: dict[str, IPv6Address] = {}
    """The router whose IPv6 advertisements are accepted on an interface that is LAN and WAN at
    once."""


class LocalZone(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A domain, names beneath it included, that is resolved by resolvers on this device or in a
    LAN.
    """

    domain: Domain
    servers: Annotated[tuple[Address, ...], Meta(min_length=1)]
    """IPv4 addresses, the preferred one first."""


class Resolvers(msgspec.Struct, frozen=True, kw_only=True):
    """DNS servers by role, IPv4 addresses, the preferred one first."""

    device: tuple[str, ...]
    """Resolvers of the device itself: for DIRECT, for lines whose peer hands out none, and for the
    names of nodes' servers."""
    domestic: tuple[str, ...]
    """Resolvers asked directly, never through a target."""
    outbound: tuple[str, ...]
    """Resolvers asked through the target; also a node's default resolvers."""
    home: tuple[str, ...]
    """Profile ``return``: resolvers asked through the target, for traffic that goes back home."""
    near: tuple[tuple[str, str], ...] = ()
    """Pairs of a resolver in ``device`` that only one interface leads to, such as a WAN's own
    router, and that interface."""
    local: tuple[LocalZone, ...] = ()
    """Domains resolved locally for clients with a rule, unless their target is REJECT."""
    inner: tuple[str, ...] = ()
    """The resolvers of any role that are on this machine or in one of its LANs."""
    has_line_dns: bool = True
    """True if a VPN line's DNS profile counts; if not, every profile is treated as ``auto``."""

    def all_reached_by(self, interface: str) -> tuple[str, ...]:
        """Return the resolvers of ``device`` that are reached through `interface`, else
        ``domestic``.

        An empty name stands for the machine's own choice of interfaces.
        """
        interfaces = dict(self.near)
        reached = (
            s for s in self.device if not interface or interfaces.get(s, interface) == interface
        )
        return tuple(reached) or self.domestic

    def reached_by(self, interface: str) -> str:
        """Return the first one of `all_reached_by`."""
        return self.all_reached_by(interface)[0]

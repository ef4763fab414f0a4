"""What the configuration file says of the device, beyond what the machine shows by itself."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Annotated

import msgspec
from msgspec import Meta

from egressd.model.forms import Address, Domain


class InterfaceRoles(msgspec.Struct, frozen=True, kw_only=True):
    """Which interfaces face the clients, which the outside, and which neither.

    Empty ``lan`` or ``wan`` means: found from the machine's addresses and default routes.
    """

    lan: tuple[str, ...] = ()
    wan: tuple[str, ...] = ()
    local: tuple[str, ...] = ()
    """Networks of this machine's own, beside those that are found: containers, virtual machines,
    a VPN server's callers."""
    multicast: bool = False
    """Whether what other programs route by multicast reaches the LANs."""
    gateways: dict[str, IPv4Address] = {}
    """Gateway of a WAN that has no default route in the main table."""
    gateways6: dict[str, IPv6Address] = {}
    """The router whose IPv6 advertisements count on an interface that is LAN and WAN at once."""


class LocalZone(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A domain, with all names beneath it, that is asked at resolvers here or in a LAN."""

    domain: Domain
    servers: Annotated[tuple[Address, ...], Meta(min_length=1)]
    """IPv4 addresses, the preferred one first."""


class Resolvers(msgspec.Struct, frozen=True, kw_only=True):
    """DNS servers by role, IPv4 addresses, the preferred one first."""

    device: tuple[str, ...]
    """What the device itself uses: for DIRECT, for lines whose peer hands out none, and to
    resolve the names of nodes' servers."""
    domestic: tuple[str, ...]
    """Asked directly, never through a target."""
    outbound: tuple[str, ...]
    """Asked through the target; also the natural resolver of a node."""
    home: tuple[str, ...]
    """Profile ``return``: asked through the target, for traffic that goes back home."""
    near: tuple[tuple[str, str], ...] = ()
    """Those of ``device`` that only one interface leads to, such as a WAN's own router, and that
    interface."""
    local: tuple[LocalZone, ...] = ()
    """Names that are asked at home for clients with a rule, whatever their target but REJECT."""
    inner: tuple[str, ...] = ()
    """Those of all resolvers that are this machine's own or in one of its LANs."""
    has_line_dns: bool = True
    """Whether a VPN line's DNS profile counts; if not, each is taken for ``auto``."""

    def all_reached_by(self, interface: str) -> tuple[str, ...]:
        """Those of ``device`` that can be asked by way of `interface`, else ``domestic``.

        An empty name stands for the machine's own choice of interfaces.
        """
        ways = dict(self.near)
        reached = (s for s in self.device if not interface or ways.get(s, interface) == interface)
        return tuple(reached) or self.domestic

    def reached_by(self, interface: str) -> str:
        """The preferred one of `all_reached_by`."""
        return self.all_reached_by(interface)[0]

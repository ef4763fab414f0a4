"""What the configuration file says of the device, beyond what the machine shows by itself."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Final

import msgspec

_NEARBY: Final = tuple(
    IPv4Network(network)
    for network in (
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",
        "169.254.0.0/16",
    )
)
"""Private (RFC 1918), shared (RFC 6598) and link-local (RFC 3927): in each network an address of
these is another machine."""


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """Which interfaces face the clients and which the outside.

    Empty ``lan`` or ``wan`` means: found from the machine's addresses and default routes.
    """

    lan: tuple[str, ...] = ()
    wan: tuple[str, ...] = ()
    gateways: dict[str, IPv4Address] = {}
    """Gateway of a WAN that has no default route in the main table."""


class Resolvers(msgspec.Struct, frozen=True, kw_only=True):
    """DNS servers by role, IPv4 addresses, the preferred one first."""

    device: tuple[str, ...]
    """What the device itself uses: for DIRECT, for lines whose peer hands out none, and to
    resolve the names of nodes' servers. May be in the LAN, or be one WAN's own router."""
    domestic: tuple[str, ...]
    """Asked directly, never through a target."""
    outbound: tuple[str, ...]
    """Asked through the target; also the natural resolver of a node."""
    home: tuple[str, ...]
    """Profile ``return``: asked through the target, for traffic that goes back home."""
    has_line_dns: bool = True
    """Whether a VPN line's DNS profile counts; if not, each is taken for ``auto``."""

    @property
    def by_interface(self) -> str:
        """The server that is asked by way of an interface that was chosen for the traffic.

        The first of the device's that is the same one everywhere: what is nearby is reached by one
        interface at most, and which one is not known here. Without such a server, the first of
        `outbound`.
        """
        return next(filter(_is_everywhere, self.device), self.outbound[0])


def _is_everywhere(server: str) -> bool:
    return not any(IPv4Address(server) in network for network in _NEARBY)

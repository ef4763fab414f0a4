"""The origin of a request: its address, and the network whose addresses its sender can choose."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final, NamedTuple

_NETWORK_BITS: Final = {4: 24, 6: 64}
"""Bits of a network by IP version: a host of a LAN may take any address there."""


class Source(NamedTuple):
    """A sender. All loopback addresses are one sender: a local user may take any of them."""

    address: str
    network: str
    """The /24 or /64 of the address."""
    is_here: bool = False
    """True if the request comes from this machine itself."""


HERE: Final = Source("loopback", "loopback", is_here=True)


@lru_cache(maxsize=1024)
def source_of(address: str) -> Source:
    """Return the sender at an IP address; any other text stands for this machine itself."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return HERE
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped
    if parsed.is_loopback:
        return HERE
    network = ip_network((parsed, _NETWORK_BITS[parsed.version]), strict=False)
    return Source(str(parsed), str(network))


def local_user(uid: int) -> Source:
    """Return the sender for a user of this machine, at a Unix socket."""
    return Source(f"user {uid}", "loopback", is_here=True)

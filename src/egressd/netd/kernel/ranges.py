"""A set of IPv4 addresses given as addresses, networks and ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, collapse_addresses, summarize_address_range


class Ranges:
    """Addresses to look for. Takes ``192.0.2.7``, ``192.0.2.0/24`` and ``192.0.2.3-192.0.2.9``."""

    def __init__(self, texts: Iterable[str]) -> None:
        networks = [network for text in texts for network in _networks(text)]
        self.networks: tuple[IPv4Network, ...] = tuple(collapse_addresses(networks))
        """The same addresses as disjoint networks, in order."""
        self._firsts = [network.network_address.packed for network in self.networks]
        self._lasts = [network.broadcast_address.packed for network in self.networks]

    def __contains__(self, address: bytes) -> bool:
        """Whether the address, 4 bytes in network order, is one of them. O(log n)."""
        place = bisect_right(self._firsts, address) - 1
        return place >= 0 and address <= self._lasts[place]


def _networks(text: str) -> Iterable[IPv4Network]:
    first, dash, last = text.partition("-")
    if dash:
        return summarize_address_range(IPv4Address(first), IPv4Address(last))
    return [IPv4Network(text)]

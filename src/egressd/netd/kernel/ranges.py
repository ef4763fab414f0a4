"""A set of IPv4 addresses given as addresses, networks and ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, summarize_address_range
from socket import AF_INET, inet_pton


class Ranges:
    """Addresses to look for. Takes ``192.0.2.7``, ``192.0.2.0/24`` and ``192.0.2.3-192.0.2.9``."""

    def __init__(self, texts: Iterable[str]) -> None:
        spans = list(_joined(sorted(map(_span, texts))))
        self._firsts = [first.to_bytes(4, "big") for first, _ in spans]
        self._lasts = [last.to_bytes(4, "big") for _, last in spans]
        self.size = sum(last - first + 1 for first, last in spans)
        """How many addresses there are."""

    def __contains__(self, address: bytes) -> bool:
        """Whether the address, 4 bytes in network order, is one of them. O(log n)."""
        place = bisect_right(self._firsts, address) - 1
        return place >= 0 and address <= self._lasts[place]

    def networks(self) -> Iterator[IPv4Network]:
        """The same addresses as disjoint networks, in order."""
        for first, last in zip(self._firsts, self._lasts, strict=True):
            yield from summarize_address_range(IPv4Address(first), IPv4Address(last))


def _span(text: str) -> tuple[int, int]:
    """The first and the last address, as numbers."""
    try:
        # By far the most are single addresses; an `IPv4Network` takes ten times as long.
        first = last = inet_pton(AF_INET, text)
    except OSError:
        first, last = _ends(text)
    return int.from_bytes(first, "big"), int.from_bytes(last, "big")


def _ends(text: str) -> tuple[bytes, bytes]:
    begin, dash, end = text.partition("-")
    if not dash:
        network = IPv4Network(text)
        return network.network_address.packed, network.broadcast_address.packed
    first, last = IPv4Address(begin), IPv4Address(end)
    if first > last:
        raise ValueError(f"{text}: the first address is greater than the last")
    return first.packed, last.packed


def _joined(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Spans in order, with those joined that overlap or touch."""
    begun: tuple[int, int] | None = None
    for first, last in spans:
        if begun is None:
            begun = first, last
        elif first <= begun[1] + 1:
            begun = begun[0], max(begun[1], last)
        else:
            yield begun
            begun = first, last
    if begun is not None:
        yield begun

"""Sets of IPv4 addresses, given as addresses, networks and ranges, and numbers for them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network, summarize_address_range
from itertools import pairwise
from socket import AF_INET, inet_ntoa, inet_pton


class Ranges:
    """A set of addresses. Takes ``192.0.2.7``, ``192.0.2.0/24`` and ``192.0.2.3-192.0.2.9``."""

    def __init__(self, texts: Iterable[str]) -> None:
        spans = list(_joined(sorted(map(_span, texts))))
        self._firsts = [first.to_bytes(4, "big") for first, _ in spans]
        self._lasts = [last.to_bytes(4, "big") for _, last in spans]
        self.size = sum(last - first + 1 for first, last in spans)
        """Number of addresses in the set."""

    def __contains__(self, address: bytes) -> bool:
        """Return whether the address, 4 bytes in network order, is in the set. O(log n)."""
        place = bisect_right(self._firsts, address) - 1
        return place >= 0 and address <= self._lasts[place]

    def networks(self) -> Iterator[IPv4Network]:
        """Yield the same addresses as disjoint networks, in order."""
        for first, last in zip(self._firsts, self._lasts, strict=True):
            yield from summarize_address_range(IPv4Address(first), IPv4Address(last))

    def clip(self, texts: Iterable[str]) -> Iterator[str]:
        """Yield the parts of `texts` within the set: addresses unchanged, all others as
        ``first-last`` ranges.
        """
        for text in texts:
            first, last = (end.to_bytes(4, "big") for end in _span(text))
            place = max(bisect_right(self._firsts, first) - 1, 0)
            for begin, end in zip(self._firsts[place:], self._lasts[place:], strict=True):
                if begin > last:
                    break
                if end >= first:
                    is_one = first == last
                    yield text if is_one else _range(max(begin, first), min(end, last))


class RangeMap:
    """Numbers of disjoint ``first-last`` ranges, found by address. Immutable."""

    def __init__(self, numbers: Mapping[str, int]) -> None:
        spans = sorted((*_span(text), number) for text, number in numbers.items())
        self._firsts = [first for first, _, _ in spans]
        self._lasts = [last for _, last, _ in spans]
        self._numbers = [number for _, _, number in spans]

    def get(self, address: bytes) -> int:
        """Return the number of the range that contains the address, 4 bytes in network order; 0 if
        no range does. O(log n).
        """
        return self._at(int.from_bytes(address, "big"))

    def differing(self, other: RangeMap) -> Iterator[str]:
        """Yield the ranges whose addresses have another number in `other`, in order. O(n log n)."""
        if other is self:
            return
        edges = {*self._firsts, *other._firsts}
        edges.update(last + 1 for last in (*self._lasts, *other._lasts))
        for first, beyond in pairwise(sorted(edges)):
            if self._at(first) != other._at(first):
                yield _range(first.to_bytes(4, "big"), (beyond - 1).to_bytes(4, "big"))

    def _at(self, address: int) -> int:
        place = bisect_right(self._firsts, address) - 1
        return self._numbers[place] if place >= 0 and address <= self._lasts[place] else 0


def _range(first: bytes, last: bytes) -> str:
    return f"{inet_ntoa(first)}-{inet_ntoa(last)}"


def _span(text: str) -> tuple[int, int]:
    """Return the first and the last address, as numbers."""
    begin, dash, end = text.partition("-")
    try:
        # Most texts by far are addresses and ranges; an `IPv4Network` takes ten times as long.
        first = inet_pton(AF_INET, begin)
        last = inet_pton(AF_INET, end) if dash else first
    except OSError:
        network = IPv4Network(text)
        first, last = network.network_address.packed, network.broadcast_address.packed
    if first > last:
        raise ValueError(f"{text}: the first address is greater than the last")
    return int.from_bytes(first, "big"), int.from_bytes(last, "big")


def _joined(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield spans in order, joining those that overlap or touch."""
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

"""Overlapping CIDR rules made into disjoint ranges, the most specific rule winning.

nftables refuses overlapping intervals in a map, and then loads nothing at all, so the kernel is
only ever given disjoint ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from typing import NamedTuple


class Span(NamedTuple):
    """A range of addresses, given as numbers, and the value that it has."""

    first: int
    last: int
    value: int


def flatten(networks: Mapping[IPv4Network, int]) -> dict[str, int]:
    """Map disjoint ``first-last`` ranges to the value of the longest prefix that covers them.

    Neighbouring ranges of the same value are joined. The result is ordered by address.
    O(n log n).
    """
    return {f"{_dotted(first)}-{_dotted(last)}": value for first, last, value in spans(networks)}


def spans(networks: Mapping[IPv4Network, int]) -> list[Span]:
    """Return what `flatten` does, as numbers."""
    pieces: list[Span] = []
    # Networks either nest or are disjoint. In this order each comes after those around it.
    enclosing: list[tuple[int, int]] = []  # (last address, value) of the open networks
    position = 0  # first address that no piece covers yet

    def emit(last: int, value: int) -> None:
        nonlocal position
        if position > last:
            return
        if pieces and pieces[-1].value == value and pieces[-1].last + 1 == position:
            pieces[-1] = Span(pieces[-1].first, last, value)
        else:
            pieces.append(Span(position, last, value))
        position = last + 1

    def close_before(address: int) -> None:
        nonlocal position
        while enclosing and enclosing[-1][0] < address:
            emit(*enclosing.pop())
        if enclosing:
            emit(address - 1, enclosing[-1][1])
        position = max(position, address)

    for first, length, value in sorted(
        (int(network.network_address), network.prefixlen, value)
        for network, value in networks.items()
    ):
        close_before(first)
        enclosing.append((first + (1 << 32 - length) - 1, value))
    while enclosing:
        emit(*enclosing.pop())
    return pieces


def overlaps(spans: Sequence[Span], others: Sequence[Span]) -> Iterator[tuple[Span, Span]]:
    """Yield the ranges that two lists have in common, in order: once with each one's value.

    Each list must be disjoint and sorted. O(n).
    """
    at = beside = 0
    while at < len(spans) and beside < len(others):
        one, other = spans[at], others[beside]
        first, last = max(one.first, other.first), min(one.last, other.last)
        if first <= last:
            yield Span(first, last, one.value), Span(first, last, other.value)
        if one.last < other.last:
            at += 1
        else:
            beside += 1


def _dotted(address: int) -> str:
    # Creating `IPv4Address` objects would take half of the time for 10,000 networks.
    return f"{address >> 24}.{address >> 16 & 255}.{address >> 8 & 255}.{address & 255}"


def merge(networks: Iterable[IPv4Network]) -> tuple[str, ...]:
    """Return the disjoint, sorted ``first-last`` ranges that cover exactly `networks`."""
    return tuple(flatten(dict.fromkeys(networks, 0)))


def range_text(text: str) -> str:
    """Return ``first-last`` in nft's notation: one address if both are the same."""
    first, _, last = text.partition("-")
    return first if first == last else text

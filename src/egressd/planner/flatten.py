"""Overlapping CIDR rules made into disjoint ranges, the most specific rule winning.

nftables refuses overlapping intervals in a map, and then loads nothing at all, so the kernel is
only ever given disjoint ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from ipaddress import IPv4Network


def flatten(networks: Mapping[IPv4Network, int]) -> dict[str, int]:
    """Map disjoint ``first-last`` ranges to the value of the longest prefix that covers them.

    Neighbouring ranges of the same value are joined. The result is ordered by address.
    O(n log n).
    """
    pieces: list[tuple[int, int, int]] = []
    # Networks either nest or are disjoint. In this order each comes after those around it.
    enclosing: list[tuple[int, int]] = []  # (last address, value) of the open networks
    position = 0  # first address that no piece covers yet

    def emit(last: int, value: int) -> None:
        nonlocal position
        if position > last:
            return
        if pieces and pieces[-1][2] == value and pieces[-1][1] + 1 == position:
            pieces[-1] = (pieces[-1][0], last, value)
        else:
            pieces.append((position, last, value))
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
    return {f"{_dotted(first)}-{_dotted(last)}": value for first, last, value in pieces}


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

"""The delays of nodes in the history: one byte for each node in a slot.

A code stands for a number of milliseconds: up to 29 ms exactly, above that within 2 %, or 1 ms. The
codes of all nodes are one block of a slot, which fills a page of SQLite.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

NODES_MAX: Final = 4000
"""Nodes that have a history at most: the bytes of a block."""
_GROWTH: Final = 1.035
"""The ratio of two neighbouring numbers, as far as whole numbers allow it."""
_LONGEST_MS: Final = 60_000
"""Milliseconds of the longest measurement that an operator may ask for."""


def _numbers() -> Iterator[int]:
    yield 0  # no delay
    number = 1
    while number < _LONGEST_MS:
        yield number
        number = max(number + 1, round(number * _GROWTH))
    yield _LONGEST_MS


MILLISECONDS: Final = tuple(_numbers())
"""Milliseconds by the code that stands for them; code 0 stands for no delay."""


def code_of_delay(ms: int) -> int:
    """Return the code of the number next to `ms`."""
    above = min(bisect_left(MILLISECONDS, max(1, ms)), len(MILLISECONDS) - 1)
    below = max(1, above - 1)
    return below if ms - MILLISECONDS[below] < MILLISECONDS[above] - ms else above


def delay_in(codes: bytes, number: int) -> int | None:
    """Return the milliseconds of the node with this number in a block; None if it has none. Raises
    ValueError if its code is none.
    """
    if number >= len(codes) or not codes[number]:
        return None
    if codes[number] >= len(MILLISECONDS):
        raise ValueError("a block of the history has other numbers than codes of delays")
    return MILLISECONDS[codes[number]]


class OpenDelays:
    """The delays of a slot that still grows: the mean of each node's."""

    def __init__(self) -> None:
        self._sums = array("Q", bytes(8 * NODES_MAX))
        self._counts = array("L", bytes(array("L").itemsize * NODES_MAX))

    def add(self, number: int, ms: int, weight: int = 1) -> None:
        """Add a delay of the node with this number, which counts like `weight` of them."""
        self._sums[number] += ms * weight
        self._counts[number] += weight

    def add_all(self, codes: bytes, weight: int) -> None:
        """Add the delays of another slot. Raises ValueError if they have no codes."""
        for number, code in enumerate(codes):
            if code and (ms := delay_in(codes, number)) is not None:
                self.add(number, ms, weight)

    def fill(self, codes: bytes) -> None:
        """Take the delays of another slot for nodes that have none. Raises ValueError if they have
        no codes.
        """
        for number, code in enumerate(codes):
            if code and not self._counts[number] and (ms := delay_in(codes, number)) is not None:
                self.add(number, ms)

    def codes(self) -> bytes:
        """Return the block, without the zeros at the end."""
        pairs = zip(self._sums, self._counts, strict=True)
        return bytes(
            code_of_delay(round(sum_ / count)) if count else 0 for sum_, count in pairs
        ).rstrip(b"\0")

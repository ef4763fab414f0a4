"""The history of traffic: its steps, the blocks that it is kept in, and its rounded numbers.
Beside the traffic, a slot has the delays of nodes (`egressd.model.node_delays`).

A *slot* is one span of a step, by the Unix time at which it begins. In each slot every key (a
client, a target or an interface) has two numbers of bytes. A key of a kind has a number, and
`BLOCK_KEYS` keys with consecutive numbers are a *block*: one blob for each slot, with two codes a
key. A code is 16 bits, in the machine's byte order, for a number of bytes rounded to three digits.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Mapping
from enum import Enum
from functools import cache
from heapq import nlargest
from operator import add
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, TypeAlias

from egressd.model.node_delays import OpenDelays
from egressd.model.timelines import PARTS_MAX

By: TypeAlias = Literal["client", "target", "interface"]
"""A kind of key that has traffic."""
KeyKind: TypeAlias = Literal["client", "target", "interface", "node", "line", "group"]
"""A kind of key: one with traffic, or one with states."""
StepName: TypeAlias = Literal["1m", "15m", "1h", "1d"]

BLOCK_KEYS: Final = 1000
"""Keys in a block: their codes are 4,000 bytes, which fill a page of SQLite."""
BLOCKS: Final[Mapping[By, range]] = {
    "client": range(14),
    "target": range(14, 18),
    "interface": range(18, 19),
}
"""The blocks of each kind. All of them at full retention are 137 MB."""
BLOCKS_MAX: Final = 19
DELAY_BLOCK: Final = BLOCKS_MAX
"""The block of nodes' delays: 7 MB at full retention."""
KEYS_MAX: Final[Mapping[KeyKind, int]] = {
    "client": BLOCK_KEYS * len(BLOCKS["client"]),
    "target": BLOCK_KEYS * len(BLOCKS["target"]),
    "interface": BLOCK_KEYS * len(BLOCKS["interface"]),
    "node": PARTS_MAX["node"],
    "line": PARTS_MAX["line"],
    "group": PARTS_MAX["group"],
}
"""Keys that each kind has at most."""


class HistoryStep(Enum):
    """The length of a slot in seconds, and the number of slots that are kept."""

    MINUTE = 60, 180
    QUARTER = 900, 288
    HOUR = 3600, 744
    DAY = 86_400, 730

    def __init__(self, seconds: int, kept: int) -> None:
        self.seconds: Final = seconds
        self.kept: Final = kept

    def start(self, at: float) -> int:
        """Return the start of the slot that the time `at` is in. Days are those of UTC."""
        return int(at // self.seconds) * self.seconds


STEPS: Final[Mapping[StepName, HistoryStep]] = {
    "1m": HistoryStep.MINUTE,
    "15m": HistoryStep.QUARTER,
    "1h": HistoryStep.HOUR,
    "1d": HistoryStep.DAY,
}
"""The steps by the names that callers use, the finest first."""
STORED: Final = (HistoryStep.QUARTER, HistoryStep.HOUR, HistoryStep.DAY)
"""The steps that are kept in the file; minutes are kept in memory."""


class Exchanged(NamedTuple):
    """Bytes of IP packets, as the client sees them. For an interface: sent, and received."""

    upload: int = 0
    download: int = 0

    def plus(self, other: Exchanged) -> Exchanged:
        """Return the sums of both directions."""
        return Exchanged(self.upload + other.upload, self.download + other.download)


LARGEST_MAX: Final = 1000
"""The most keys that one list of the largest has."""
TOP_DAYS_MAX: Final = 31
"""Days that the largest keys are looked for in at most."""

Blocks: TypeAlias = dict[int, bytes]
"""Block -> the codes of its keys, two for each and in `DELAY_BLOCK` one, without the zeros at the
end."""


# --- Codes. --------------------------------------------------------------------------------

_EXACT: Final = 1000
"""Numbers below this are codes themselves."""
_EXPONENTS: Final = 13
"""Powers of ten, from 10 on, that three digits are multiplied by."""
CODES: Final = _EXACT + 900 * _EXPONENTS
"""The number of codes."""
DECODED: Final = array(
    "Q",
    (
        *range(_EXACT),
        *(
            digits * 10**exponent
            for exponent in range(1, _EXPONENTS + 1)
            for digits in range(100, _EXACT)
        ),
    ),
)
"""The number that each code stands for. The largest is 9.99e15, more than a day at 100 Gbit/s."""


_NO_CODES: Final = "a block of the history has other numbers than codes"


def code_of(number: int) -> int:
    """Return the code of a number of bytes, which is rounded to three digits; the largest code if
    it is beyond all.
    """
    if number < _EXACT:
        return number
    exponent = len(str(number)) - 3
    unit: int = 10**exponent
    digits = (number + unit // 2) // unit
    if digits == _EXACT:
        digits, exponent = 100, exponent + 1
    return min(_EXACT + 900 * (exponent - 1) + digits - 100, CODES - 1)


def exchanged_in(codes: bytes, number: int) -> Exchanged:
    """Return the bytes of a key, by its number in its kind, in its block of a slot. Raises
    ValueError if its codes are none.
    """
    at = number % BLOCK_KEYS * 4
    pair = codes[at : at + 4].ljust(4, b"\0")
    return Exchanged(*numbers_of(pair))


def numbers_of(codes: bytes) -> list[int]:
    """Return the numbers of a block's codes. Raises ValueError if they are none."""
    try:
        return [*map(DECODED.__getitem__, struct.unpack(f"={len(codes) // 2}H", codes))]
    except (IndexError, struct.error):
        raise ValueError(_NO_CODES) from None


def block_of(by: By, number: int) -> int:
    """Return the block that a key is in, by its kind and its number."""
    return BLOCKS[by][number // BLOCK_KEYS]


class Sums:
    """Sums over blocks, of all their keys at once.

    The numbers of a block are one long integer with 64 bits for each, so that an addition adds all
    of them: 50 times as fast as a loop. The sum of 1,800 slots has no more than 64 bits.
    """

    def __init__(self, sums: Mapping[int, int] = MappingProxyType({})) -> None:
        self._sums = dict(sums)

    def copy(self) -> Sums:
        """Return the same sums, for others to add to."""
        return Sums(self._sums)

    def add(self, block: int, codes: bytes) -> None:
        """Add a block of one slot. Raises ValueError if it has other numbers than codes."""
        self._sums[block] = self._sums.get(block, 0) + _unpacked(codes)

    def remove(self, block: int, codes: bytes) -> None:
        """Take off a block that was added. Raises ValueError if it has other numbers than codes."""
        self._sums[block] -= _unpacked(codes)

    def add_numbers(self, block: int, numbers: array[int]) -> None:
        """Add a block of one slot, two exact numbers a key."""
        packed = struct.pack(f"<{len(numbers)}Q", *numbers)
        self._sums[block] = self._sums.get(block, 0) + int.from_bytes(packed, "little")

    def largest(self, by: By, limit: int) -> list[tuple[int, Exchanged]]:
        """Return the keys of a kind with the largest sums, by their numbers, the largest first;
        none that exchanged nothing.
        """
        found: list[tuple[int, int, Exchanged]] = []
        for index, block in enumerate(BLOCKS[by]):
            if block not in self._sums:
                continue
            packed = self._sums[block].to_bytes(BLOCK_KEYS * 16, "little")
            numbers = struct.unpack(f"<{2 * BLOCK_KEYS}Q", packed)
            up, down = numbers[::2], numbers[1::2]
            totals = [*map(add, up, down)]
            for at in nlargest(limit, range(BLOCK_KEYS), key=totals.__getitem__):
                if totals[at]:
                    pair = Exchanged(up[at], down[at])
                    found.append((totals[at], index * BLOCK_KEYS + at, pair))
        return [(number, pair) for _, number, pair in nlargest(limit, found)]


@cache
def _packed() -> tuple[bytes, ...]:
    """Return the number of each code as eight bytes: joined, they are decoded twice as fast as in
    a loop. They take 0.7 MB, and are made at the first question for the largest keys.
    """
    return tuple(struct.pack("<Q", number) for number in DECODED)


def _unpacked(codes: bytes) -> int:
    """Return the numbers of a block as one integer with 64 bits for each. Raises ValueError."""
    try:
        packed = b"".join(map(_packed().__getitem__, memoryview(codes).cast("H")))
    except (IndexError, TypeError):
        raise ValueError(_NO_CODES) from None
    return int.from_bytes(packed, "little")


# --- Slots that still grow. ----------------------------------------------------------------


class OpenSlot:
    """A slot that traffic and delays are added to, with exact numbers."""

    def __init__(self, start: int) -> None:
        self.start: Final = start
        self._blocks: dict[int, array[int]] = {}
        self._delays: OpenDelays | None = None

    def add(self, by: By, number: int, more: Exchanged) -> None:
        """Add to the key that has this number in its kind."""
        block = block_of(by, number)
        numbers = self._blocks.get(block)
        if numbers is None:
            numbers = self._blocks[block] = array("Q", bytes(8 * 2 * BLOCK_KEYS))
        at = number % BLOCK_KEYS * 2
        numbers[at] += more.upload
        numbers[at + 1] += more.download

    def add_delay(self, number: int, ms: int) -> None:
        """Add a delay of the node that has this number."""
        self._open_delays().add(number, ms)

    def _open_delays(self) -> OpenDelays:
        if self._delays is None:
            self._delays = OpenDelays()
        return self._delays

    def exchanged(self, by: By, number: int) -> Exchanged:
        """Return the bytes of the key that has this number in its kind, rounded as in `blocks`."""
        numbers = self._blocks.get(block_of(by, number))
        if numbers is None:
            return Exchanged()
        at = number % BLOCK_KEYS * 2
        return Exchanged(*(DECODED[code_of(each)] for each in numbers[at : at + 2]))

    def add_all(self, blocks: Mapping[int, bytes], weight: int = 1) -> None:
        """Add the blocks of another slot. Each of its delays counts like `weight` of them. Raises
        ValueError if they have no codes.
        """
        for block, codes in blocks.items():
            if block == DELAY_BLOCK:
                self._open_delays().add_all(codes, weight)
                continue
            numbers = self._blocks.setdefault(block, array("Q", bytes(8 * 2 * BLOCK_KEYS)))
            for at, number in enumerate(numbers_of(codes)):
                numbers[at] += number

    def raise_to(self, blocks: Mapping[int, bytes]) -> None:
        """Raise each number to the one that the blocks of another slot have, if it is lower, and
        take delays of nodes that have none. Raises ValueError if they have no codes.
        """
        for block, codes in blocks.items():
            if block == DELAY_BLOCK:
                self._open_delays().fill(codes)
                continue
            numbers = self._blocks.setdefault(block, array("Q", bytes(8 * 2 * BLOCK_KEYS)))
            for at, number in enumerate(numbers_of(codes)):
                numbers[at] = max(numbers[at], number)

    def add_to(self, sums: Sums, by: By) -> None:
        """Add all keys of a kind to sums."""
        for block in BLOCKS[by]:
            if (numbers := self._blocks.get(block)) is not None:
                sums.add_numbers(block, numbers)

    def blocks(self) -> Blocks:
        """Return the blocks with rounded numbers."""
        made = {block: _encoded(numbers) for block, numbers in self._blocks.items()}
        if self._delays is not None:
            made[DELAY_BLOCK] = self._delays.codes()
        return {block: codes for block, codes in made.items() if codes}


def _encoded(numbers: array[int]) -> bytes:
    codes = struct.pack(f"={len(numbers)}H", *map(code_of, numbers)).rstrip(b"\0")
    return codes + bytes(-len(codes) % 4)


SlotStart: TypeAlias = tuple[HistoryStep, int]
"""A step, and the start of one of its slots."""


class TrafficSlot(NamedTuple):
    """A slot as it is stored."""

    step: HistoryStep
    start: int
    blocks: Blocks


class HistoryKey(NamedTuple):
    """A key that has a number: of a client, a target, an interface, a node, a line or a group."""

    by: KeyKind
    number: int
    name: str
    since: int
    """Unix time before which the number was another key's; 0 if it never was."""
    used: int
    """Start of the last day on which it had traffic or a state, as far as known."""

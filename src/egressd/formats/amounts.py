"""Rates and port ranges as Clash users write them."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from typing import Final

_RATE: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) *(?:([kKmMgGtT]?)(bps|Bps))?\Z")
_POWERS: Final = {"": 0, "k": 3, "m": 6, "g": 9, "t": 12}


def rate_mbps(value: int | str) -> int:
    """A rate as Clash writes it (``100``, ``"100 Mbps"``, ``"20 MBps"``) in Mbit/s, rounded up.

    Without a unit it is in Mbit/s; ``bps`` counts bits, ``Bps`` bytes. Raises ValueError.
    """
    match = _RATE.match(str(value))
    if match is None:
        raise ValueError("not a rate")
    number, prefix, unit = match.groups()
    power = _POWERS[prefix.lower() if unit else "m"]
    bits: Fraction = Fraction(number) * 10**power * (8 if unit == "Bps" else 1)
    return ceil(bits / 10**6)


_PORT_RANGES: Final = re.compile(r"[0-9]{1,5}(-[0-9]{1,5})?([,/][0-9]{1,5}(-[0-9]{1,5})?){0,63}\Z")


def port_ranges(text: str) -> list[tuple[int, int]]:
    """The ranges of ``443,8000-9000`` (``/`` separates as well). Raises ValueError."""
    if not _PORT_RANGES.match(text):
        raise ValueError("not a list of ports")
    ranges = []
    for part in re.split("[,/]", text):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if not 1 <= low <= high <= 65535:
            raise ValueError("not a range of ports")
        ranges.append((low, high))
    return ranges

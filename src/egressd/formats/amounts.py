"""Rates and port ranges as Clash users write them."""

from __future__ import annotations

import re
from fractions import Fraction
from math import ceil
from typing import Final

_RATE: Final = re.compile(
    r"([0-9]{1,9}(?:\.[0-9]{1,6})?) *(?:([kKmMgGtT]?)(bps|Bps|b)|([kKmMgGtT]))?\Z"
)
_POWERS: Final = {"": 0, "k": 3, "m": 6, "g": 9, "t": 12}


def rate_mbps(value: int | str) -> int:
    """Return a rate in Mbit/s, rounded up.

    The text is as in Clash (``100``, ``"100 Mbps"``, ``"20 MBps"``) or Hysteria (``100 mb``,
    ``100m``). A number without a unit is in Mbit/s; ``bps`` counts bits, ``Bps`` bytes. Raises
    ValueError.
    """
    match = _RATE.match(str(value))
    if match is None:
        raise ValueError("not a rate")
    number, prefix, unit, letter = match.groups()
    power = _POWERS[(prefix if unit else letter or "m").lower()]
    bits: Fraction = Fraction(number) * 10**power * (8 if unit == "Bps" else 1)
    return ceil(bits / 10**6)


_PORTS: Final = r"[0-9]{1,5}(?:[-:][0-9]{1,5})?"
_PORT_RANGES: Final = re.compile(rf"{_PORTS}(?:[,/;]{_PORTS}){{0,63}}\Z")


def port_ranges(text: str) -> list[tuple[int, int]]:
    """Return the ranges of ``443,8000-9000``. ``/`` and ``;`` separate as well, and a range may be
    written ``8000:9000``, as in sing-box. Raises ValueError.
    """
    text = text.replace(" ", "")
    if not _PORT_RANGES.match(text):
        raise ValueError("not a list of ports")
    ranges = []
    for part in re.split("[,/;]", text):
        first, _, last = part.replace(":", "-").partition("-")
        low, high = int(first), int(last or first)
        if not 1 <= low <= high <= 65535:
            raise ValueError("not a range of ports")
        ranges.append((low, high))
    return ranges


_DURATION: Final = re.compile(r"([0-9]{1,9})(ms|s|m|h)\Z")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000}


def duration_ms(text: str) -> int | None:
    """Return a duration in Go's notation (``30s``, ``500ms``) in milliseconds, or None if the text
    is no such duration.
    """
    match = _DURATION.match(text)
    return int(match[1]) * _UNITS_MS[match[2]] if match else None


_SECONDS: Final = re.compile(r"\s*([0-9]{1,5})s?(?:\s*-\s*([0-9]{1,5})s?)?\s*\Z")


def seconds_range(value: int | str) -> tuple[int, int]:
    """Return the least and the most of ``30`` or ``15-30``, in seconds. Raises ValueError."""
    match = _SECONDS.match(str(value))
    if match is None:
        raise ValueError("not a number of seconds, nor a range of them")
    low, high = int(match[1]), int(match[2] or match[1])
    if low > high:
        raise ValueError("not a range")
    return low, high

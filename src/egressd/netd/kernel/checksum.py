"""The Internet checksum (RFC 1071), of headers that this machine writes itself."""

from __future__ import annotations

import struct
from typing import Final

_BITS: Final = 16
"""Bits of a word."""
_MASK: Final = (1 << _BITS) - 1


def internet_checksum(data: bytes) -> int:
    """Return the checksum of an even number of bytes, in which its own place is 0."""
    total: int = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total > _MASK:
        total = (total & _MASK) + (total >> _BITS)
    return ~total & _MASK

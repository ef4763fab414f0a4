"""The content of downloads and uploads, known to both ends in advance.

Byte ``i`` of every body is ``PATTERN[i % len(PATTERN)]``: a receiver can check each piece of any
size as it comes, and a lost or doubled piece is found at its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final

PATTERN: Final = hashlib.shake_128(b"egressd lab").digest(1 << 20)
"""1 MiB without any shorter period."""

_TWICE: Final = PATTERN * 2


def piece(offset: int, size: int) -> bytes:
    """Return `size` bytes (at most 1 MiB) of the body from `offset` on."""
    start = offset % len(PATTERN)
    return _TWICE[start : start + size]


def pieces(size: int) -> Iterator[bytes]:
    """Yield a whole body, a MiB at a time."""
    for offset in range(0, size, len(PATTERN)):
        yield piece(offset, min(len(PATTERN), size - offset))

"""ICMP echo requests (RFC 792), as raw sockets send them."""

from __future__ import annotations

import struct
from typing import Final

from egressd.netd.kernel import uapi

ECHO: Final = struct.Struct("!BBHHH")
"""Type, code, checksum, identifier, sequence number."""


def echo_request(identifier: int = 0) -> bytes:
    """Return an echo request without data."""
    total = (uapi.ICMP_ECHO << 8) + identifier
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF  # RFC 1071
    return ECHO.pack(uapi.ICMP_ECHO, 0, checksum, identifier, 0)

"""ICMP echo requests (RFC 792), as raw sockets send them."""

from __future__ import annotations

import struct
from typing import Final

from egressd.netd.kernel import uapi
from egressd.netd.kernel.checksum import internet_checksum

ECHO: Final = struct.Struct("!BBHHH")
"""Type, code, checksum, identifier, sequence number."""


def echo_request(identifier: int = 0) -> bytes:
    """Return an echo request without data."""
    checksum = internet_checksum(ECHO.pack(uapi.ICMP_ECHO, 0, 0, identifier, 0))
    return ECHO.pack(uapi.ICMP_ECHO, 0, checksum, identifier, 0)

"""Requests as DHCP clients send them (RFC 2131)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from ipaddress import IPv4Address


def request(
    mac: str,
    options: Mapping[int, bytes] | Iterable[tuple[int, bytes]],
    *,
    op: int = 1,
    relay: str = "0.0.0.0",
    port: int = 67,
    rest: bytes = b"\xff",
) -> bytes:
    """Return an IPv4 packet with a request. `rest` follows the options; checksums are 0."""
    address = bytes.fromhex(mac.replace(":", ""))
    head = struct.pack("!BBBBIHH", op, 1, 6, 0, 7, 0, 0x8000)
    head += bytes(12) + IPv4Address(relay).packed + address.ljust(16, b"\0") + bytes(192)
    pairs = options.items() if isinstance(options, Mapping) else options
    listed = b"".join(bytes([code, len(value)]) + value for code, value in pairs)
    message = head + b"\x63\x82\x53\x63" + listed + rest
    udp = struct.pack("!HHHH", 68, port, 8 + len(message), 0) + message
    total = 20 + len(udp)
    source, destination = bytes(4), b"\xff" * 4
    return struct.pack("!BBHHHBBH", 0x45, 0, total, 0, 0, 64, 17, 0) + source + destination + udp

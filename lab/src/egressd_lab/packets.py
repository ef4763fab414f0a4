"""Packets by hand: building the ones that no ordinary socket sends, reading captured ones.

Pure. Layouts are those of RFC 791 (IPv4), RFC 8200 (IPv6), RFC 768 (UDP), RFC 9293 (TCP) and RFC
792 (ICMP).
"""

from __future__ import annotations

import re
import secrets
import socket
import struct
from typing import Final, NamedTuple

TOKEN: Final = re.compile(rb"egt-[0-9a-f]{12}")
"""The token that probes carry and captures look for. It is a valid DNS label too. DNS names may
change their case on the way, so the capture compares in lower case for port 53.
"""

TCP: Final = socket.IPPROTO_TCP
UDP: Final = socket.IPPROTO_UDP
ICMP: Final = socket.IPPROTO_ICMP
ICMPV6: Final = socket.IPPROTO_ICMPV6
_PROTOCOLS: Final = {TCP: "tcp", UDP: "udp", ICMP: "icmp", ICMPV6: "icmpv6", 47: "gre", 50: "esp"}

TCP_SYN, TCP_RST, TCP_ACK = 0x02, 0x04, 0x10
ICMP_ECHO: Final = 8
ICMPV6_ECHO: Final = 128

_IPV4: Final = struct.Struct("!BBHHHBBH4s4s")
_IPV6: Final = struct.Struct("!IHBB16s16s")
_UDP: Final = struct.Struct("!HHHH")
_TCP: Final = struct.Struct("!HHIIBBHHH")
_ICMP: Final = struct.Struct("!BBHHH")
_PORTS: Final = struct.Struct("!HH")


def new_token() -> str:
    """Return a token that nothing else in the lab carries."""
    return f"egt-{secrets.token_hex(6)}"


def protocol_name(number: int) -> str:
    """Return ``tcp``, ``udp``, … or the number as text."""
    return _PROTOCOLS.get(number, str(number))


def checksum(data: bytes) -> int:
    """Return the Internet checksum (RFC 1071)."""
    if len(data) % 2:
        data += b"\0"
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def ipv4(source: str, destination: str, protocol: int, payload: bytes) -> bytes:
    """Return an IPv4 packet; source and destination may be any address."""
    src, dst = socket.inet_aton(source), socket.inet_aton(destination)
    size = _IPV4.size + len(payload)
    bare = _IPV4.pack(0x45, 0, size, 0, 0, 64, protocol, 0, src, dst)
    return _IPV4.pack(0x45, 0, size, 0, 0, 64, protocol, checksum(bare), src, dst) + payload


def udp(source_port: int, port: int, payload: bytes) -> bytes:
    """Return a UDP datagram without a checksum, which IPv4 allows."""
    return _UDP.pack(source_port, port, _UDP.size + len(payload), 0) + payload


def tcp(
    source: str,
    destination: str,
    source_port: int,
    port: int,
    payload: bytes,
    *,
    flags: int = TCP_SYN,
    sequence: int = 1,
    acknowledged: int = 0,
) -> bytes:
    """Return a segment, by default of no connection.

    A SYN may carry data (RFC 9293), so a token can travel without a handshake.
    """
    size = _TCP.size + len(payload)
    pseudo = struct.pack(
        "!4s4sBBH", socket.inet_aton(source), socket.inet_aton(destination), 0, TCP, size
    )
    fixed = source_port, port, sequence, acknowledged, 0x50, flags, 65_535
    filled = checksum(pseudo + _TCP.pack(*fixed, 0, 0) + payload)
    return _TCP.pack(*fixed, filled, 0) + payload


def icmp_echo(identifier: int, sequence: int, payload: bytes, *, kind: int = ICMP_ECHO) -> bytes:
    """Return an echo request. For ICMPv6 the kernel fills in the checksum (RFC 3542, 3.1)."""
    head = _ICMP.pack(kind, 0, 0, identifier, sequence)
    if kind == ICMPV6_ECHO:
        return head + payload
    return _ICMP.pack(kind, 0, checksum(head + payload), identifier, sequence) + payload


class Headers(NamedTuple):
    """The header fields that a capture keeps of a packet. Addresses are in network order."""

    protocol: int
    source: bytes
    destination: bytes
    port: int
    """The lower of the two ports, which is the service's; 0 for protocols without ports."""


def headers(packet: bytes) -> Headers | None:
    """Return the headers of a packet that begins with its IP header; None if it is too short or not
    IP.
    """
    try:
        if packet[0] >> 4 == 4:
            _, _, _, _, fragment, _, protocol, _, src, dst = _IPV4.unpack_from(packet)
            start = (packet[0] & 0x0F) * 4
            if fragment & 0x1FFF:  # only a first fragment holds the ports
                return Headers(protocol, src, dst, 0)
        elif packet[0] >> 4 == 6:
            _, _, protocol, _, src, dst = _IPV6.unpack_from(packet)
            start = _IPV6.size
        else:
            return None
        if protocol in (TCP, UDP):
            source_port, port = _PORTS.unpack_from(packet, start)
            return Headers(protocol, src, dst, min(source_port, port))
    except (struct.error, IndexError):
        return None
    return Headers(protocol, src, dst, 0)


def address_text(raw: bytes) -> str:
    """Return an address in network order as text."""
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)

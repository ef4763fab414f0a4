"""Packets that attackers send, in which a host poses as a router, or as any other host.

Pure. Layouts are those of RFC 4861 (neighbour discovery), RFC 792 and RFC 4443 (ICMP), RFC 8415
(DHCPv6).
"""

from __future__ import annotations

import socket
import struct
from ipaddress import IPv6Address, IPv6Network
from typing import Final

from egressd_lab.packets import ICMP, ICMPV6, UDP, checksum, ipv4

ALL_NODES: Final = "ff02::1"
ROUTER_ADVERTISEMENT: Final = 134
REDIRECT6: Final = 137
UNREACHABLE, REDIRECT, TIME_EXCEEDED, PARAMETER_PROBLEM = 3, 5, 11, 12
"""ICMP's types of messages that are about a packet, which they quote."""
UNREACHABLE6, TOO_BIG6, TIME_EXCEEDED6, PARAMETER_PROBLEM6 = 1, 2, 3, 4
"""ICMPv6's types of such messages."""
PORT_UNREACHABLE, FRAGMENTATION_NEEDED, HOST_PROHIBITED = 3, 4, 10

_IPV6: Final = struct.Struct("!IHBB16s16s")
_ON_LINK: Final = 255
"""The hop limit that no router has decremented: neighbour discovery accepts no other."""
_PREFIX, _LIFETIME = 3, 1800
_ON_LINK_AND_AUTONOMOUS: Final = 0xC0


def ipv6(
    source: str, destination: str, protocol: int, payload: bytes, *, hops: int = _ON_LINK
) -> bytes:
    """Return an IPv6 packet; its addresses may be any."""
    src, dst = IPv6Address(source).packed, IPv6Address(destination).packed
    return _IPV6.pack(0x6000_0000, len(payload), protocol, hops, src, dst) + payload


def icmpv6(source: str, destination: str, kind: int, code: int, body: bytes) -> bytes:
    """Return an ICMPv6 message; `body` is the part behind its checksum."""
    head = struct.pack("!BBH", kind, code, 0)
    ends = IPv6Address(source).packed + IPv6Address(destination).packed
    pseudo = ends + struct.pack("!IHBB", len(head + body), 0, 0, ICMPV6)
    filled = struct.pack("!BBH", kind, code, checksum(pseudo + head + body))
    return ipv6(source, destination, ICMPV6, filled + body)


def router_advertisement(
    source: str, prefix: str, destination: str = ALL_NODES, lifetime: int = _LIFETIME
) -> bytes:
    """Return an advertisement of `source` as a default router for `lifetime` seconds.

    Hosts that accept it make addresses of `prefix`.
    """
    network = IPv6Network(prefix)
    option = struct.pack(
        "!BBBBIII16s",
        _PREFIX, 4, network.prefixlen, _ON_LINK_AND_AUTONOMOUS, lifetime, lifetime, 0,
        network.network_address.packed,
    )  # fmt: skip
    body = struct.pack("!BBHII", 64, 0, lifetime, 0, 0) + option
    return icmpv6(source, destination, ROUTER_ADVERTISEMENT, 0, body)


def redirect6(source: str, destination: str, target: str, instead: str) -> bytes:
    """Return a redirect by the router `source`: `instead` is the better way to `target`."""
    body = bytes(4) + IPv6Address(instead).packed + IPv6Address(target).packed
    return icmpv6(source, destination, REDIRECT6, 0, body)


def redirect(source: str, destination: str, target: str, instead: str) -> bytes:
    """Return the same in IPv4, about a packet from `destination` to `target`."""
    quoted = ipv4(destination, target, UDP, struct.pack("!HHHH", 40_000, 53, 8, 0))
    rest = int.from_bytes(socket.inet_aton(instead))
    return icmp_error(source, destination, REDIRECT, 1, quoted, rest=rest)


def dhcpv6(source: str, destination: str, text: bytes) -> bytes:
    """Return a datagram of a DHCPv6 server to a client."""
    head = struct.pack("!HHHH", 547, 546, 8 + len(text), 0)
    ends = IPv6Address(source).packed + IPv6Address(destination).packed
    pseudo = ends + struct.pack("!IHBB", len(head + text), 0, 0, UDP)
    filled = struct.pack("!HHHH", 547, 546, 8 + len(text), checksum(pseudo + head + text))
    return ipv6(source, destination, UDP, filled + text)


def icmp_error(
    source: str, destination: str, kind: int, code: int, quoted: bytes, *, rest: int = 0
) -> bytes:
    """Return an error about the packet `quoted`; `rest` is the second word: an MTU, a router."""
    bare = struct.pack("!BBHI", kind, code, 0, rest) + quoted[:28]
    filled = struct.pack("!BBHI", kind, code, checksum(bare), rest) + quoted[:28]
    return ipv4(source, destination, ICMP, filled)


def icmpv6_error(
    source: str, destination: str, kind: int, code: int, quoted: bytes, *, rest: int = 0
) -> bytes:
    """Return the same in IPv6."""
    return icmpv6(source, destination, kind, code, struct.pack("!I", rest) + quoted[:48])

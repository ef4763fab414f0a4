"""A LAN client whose rule is `REJECT`: packets of every kind to the router, intact and broken.

They carry any source address except those of other clients (on one Ethernet these cannot be
distinguished).
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from ipaddress import IPv4Address
from random import Random
from typing import Final

from egressd_lab import forgery
from egressd_lab.packets import ICMP, TCP, UDP, checksum, icmp_echo, ipv4, tcp, udp

_ODD_SOURCES: Final = (
    str(IPv4Address(0)), "127.0.0.1", "255.255.255.255", "224.0.0.1", "169.254.1.1", "240.0.0.1",
)  # fmt: skip
_OPTIONS: Final = (
    b"\x01" * 40,  # no operation
    b"\x07\x27\x04" + bytes(37),  # record route
    b"\x83\x07\x04\xcb\x00\x71\x0a\x00",  # loose source route
    b"\x89\x07\x04\xcb\x00\x71\x0a\x00",  # strict source route
    b"\x44\x24\x05\x00" + bytes(32),  # timestamps
    b"\x94\x04\x00\x00",  # router alert
    b"\x86\x00\x00\x00",  # a length of nothing
)
"""IPv4's options (RFC 791, 3.1; RFC 2113), in whole words."""
_BATCH: Final = 32


def attack(
    rng: Random,
    *,
    interface: str,
    mac: str,
    own: str,
    own6: str,
    servers: list[str],
    servers6: list[str],
    router: list[str],
) -> Iterator[str]:
    """Send packets of all kinds. `router`: addresses of the router, including those of its WANs."""
    makes = {
        "datagram": lambda: _ipv4(rng, own, servers + router),
        "odd source": lambda: _odd(rng, servers + router),
        "far end": lambda: _far_end(rng, servers, router),
        "options": lambda: _with_options(rng, _ipv4(rng, own, servers)),
        "fragment": lambda: _fragment(rng, _ipv4(rng, own, servers)),
        "any protocol": lambda: _any_protocol(rng, own, servers + router),
        "IPv6": lambda: _ipv6(rng, own6, servers6),
        "router of IPv6": lambda: _router6(rng, own6, servers6),
        "ICMP error": lambda: _error(rng, own, servers, router),
        "redirect": lambda: forgery.redirect(
            rng.choice([own, *router]), rng.choice(router), rng.choice(servers), own
        ),
        "broken": lambda: _broken(rng, _ipv4(rng, own, servers + router)),
        "broken IPv6": lambda: _broken(rng, _ipv6(rng, own6, servers6)),
    }
    to = bytes.fromhex(mac)
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as sock:
        while True:
            name = rng.choice(list(makes))
            for _ in range(_BATCH):
                packet = makes[name]()
                kind = 0x86DD if packet[:1] and packet[0] >> 4 == 6 else 0x0800
                try:
                    sock.sendto(packet, (interface, kind, 0, 0, to))
                except OSError:  # longer than the link's MTU, or its queue is full
                    break
            yield name


def _ipv4(rng: Random, source: str, destinations: list[str]) -> bytes:
    to, body = rng.choice(destinations), rng.randbytes(rng.randrange(80))
    port = rng.choice([7, 53, 80, 443, 8787, rng.randrange(1, 65_536)])
    from_port = rng.choice([53, 443, rng.randrange(1, 65_536)])
    match rng.randrange(3):
        case 0:
            return ipv4(source, to, UDP, udp(from_port, port, body))
        case 1:
            flags = rng.randrange(256)
            return ipv4(source, to, TCP, tcp(source, to, from_port, port, body, flags=flags))
        case _:
            return ipv4(source, to, ICMP, icmp_echo(from_port, 1, body))


def _odd(rng: Random, destinations: list[str]) -> bytes:
    to = [*destinations, "224.0.0.251", "239.255.255.250", "255.255.255.255", "127.0.0.1"]
    return _ipv4(rng, rng.choice(_ODD_SOURCES), to)


def _far_end(rng: Random, servers: list[str], router: list[str]) -> bytes:
    """Return a datagram that looks like a server's answer to a client's flow."""
    body = udp(rng.choice([53, 80, 443]), rng.randrange(1024, 65_536), rng.randbytes(20))
    return ipv4(rng.choice(servers), rng.choice(router), UDP, body)


def _with_options(rng: Random, packet: bytes) -> bytes:
    options = rng.choice(_OPTIONS)
    options = options[:40].ljust(-(-len(options) // 4) * 4, b"\0")[:40]
    words = 5 + len(options) // 4
    return _summed(bytes([0x40 | words]) + packet[1:20] + options + packet[20:])


def _fragment(rng: Random, packet: bytes) -> bytes:
    offset = rng.choice([0, 1, 2, 3, rng.randrange(0x2000)])
    flags = rng.choice([0, 0x2000, 0x4000, 0x8000])
    number = rng.randrange(4).to_bytes(2)
    packet = packet[:4] + number + (offset | flags).to_bytes(2) + packet[8:]
    return _summed(packet)


def _any_protocol(rng: Random, source: str, destinations: list[str]) -> bytes:
    body = rng.randbytes(rng.randrange(80))
    return ipv4(source, rng.choice(destinations), rng.randrange(256), body)


def _ipv6(rng: Random, source: str, destinations: list[str]) -> bytes:
    """Return a packet with random headers before the payload (RFC 8200, 4)."""
    payload, protocol = udp(4000, 53, rng.randbytes(20)), UDP
    for _ in range(rng.randrange(4)):
        header = rng.choice([0, 43, 44, 60])
        payload = bytes([protocol, 0]) + rng.randbytes(6) + payload
        protocol = header
    hops = rng.choice([0, 1, 64, 255])
    source = rng.choice([source, "::", "::1", "ff02::1", *destinations])
    return forgery.ipv6(source, rng.choice(destinations), protocol, payload, hops=hops)


def _router6(rng: Random, own6: str, servers6: list[str]) -> bytes:
    source = f"fe80::{rng.randrange(1, 0xFFFF):x}"
    prefix = f"2001:db8:{rng.randrange(0x1000):x}::/64"
    return rng.choice(
        [
            forgery.router_advertisement(source, prefix, rng.choice([forgery.ALL_NODES, own6])),
            forgery.redirect6(source, own6, rng.choice(servers6), source),
            forgery.dhcpv6(source, own6, rng.randbytes(60)),
        ]
    )


def _error(rng: Random, own: str, servers: list[str], router: list[str]) -> bytes:
    to = rng.choice(router)
    quoted = ipv4(to, rng.choice(servers), UDP, udp(rng.randrange(1024, 65_536), 443, bytes(8)))
    kind = rng.choice([forgery.UNREACHABLE, forgery.TIME_EXCEEDED, forgery.PARAMETER_PROBLEM])
    source = rng.choice([own, *servers])
    return forgery.icmp_error(source, to, kind, rng.randrange(16), quoted, rest=rng.randrange(1500))


def _broken(rng: Random, packet: bytes) -> bytes:
    """Return the packet with some bytes changed, and perhaps cut short; the version stays."""
    data = bytearray(packet)
    for _ in range(rng.randrange(1, 6)):
        data[rng.randrange(1, len(data))] = rng.randrange(256)
    if data[0] >> 4 == 4:
        data[12:16] = packet[12:16]  # keep the source address
        if rng.random() < 0.8:
            data[10:12] = bytes(2)
            return _summed(bytes(data))[: rng.randrange(21, len(data) + 1)]
    return bytes(data[: rng.randrange(1, len(data) + 1)])


def _summed(packet: bytes) -> bytes:
    """Return the packet with the right checksum for its IPv4 header."""
    length = (packet[0] & 0x0F) * 4
    bare = packet[:10] + bytes(2) + packet[12:length]
    return bare[:10] + checksum(bare).to_bytes(2) + packet[12:]

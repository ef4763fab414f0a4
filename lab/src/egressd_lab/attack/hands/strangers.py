"""Strangers on the internet, with many addresses, at proxy services and at the API."""

from __future__ import annotations

import errno
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Final

_KEPT_MAX: Final = 8_000
_BATCH: Final = 50

_SAYS: Final[dict[str, Callable[[Random], bytes]]] = {
    "nothing": lambda _: b"",
    "half a greeting": lambda _: b"\x05",
    "a greeting": lambda _: b"\x05\x01\x02",
    "a guess": lambda rng: b"\x05\x01\x02\x01\x03lab\x06" + f"{rng.randrange(10**6):06}".encode(),
    "an association unasked": lambda _: b"\x05\x01\x00\x05\x03\0\x01\0\0\0\0\0\0",
    "SOCKS4": lambda _: b"\x04\x01\0\x50\xcb\0\x71\x0a\0",
    "half a request": lambda _: b"GET / HTTP/1.1\r\nHost: x\r\n",
    "a request": lambda _: b"GET /svc/api/v1/rules HTTP/1.1\r\nHost: x\r\n\r\n",
    "a body that never comes": lambda _: (
        b"POST /svc/api/v1/rules HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n{"
    ),
    "long headers": lambda _: b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 60_000,
    "a hello": lambda rng: b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + rng.randbytes(200),
    "noise": lambda rng: rng.randbytes(rng.randrange(1, 2_000)),
}


def attack(
    rng: Random, *, addresses: list[str], ports: list[int], sources: list[str]
) -> Iterator[str]:
    """Connect, send something or nothing, and stay."""
    kept: deque[socket.socket] = deque()
    while True:
        name = rng.choice(list(_SAYS))
        for _ in range(_BATCH):
            sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sock.setblocking(False)
            with suppress(OSError):
                sock.bind((rng.choice(sources), 0))
            if sock.connect_ex((rng.choice(addresses), rng.choice(ports))) not in (
                0,
                errno.EINPROGRESS,
            ):
                sock.close()
                break
            kept.append(sock)
        for sock in list(kept)[-_BATCH:]:
            with suppress(OSError):
                sock.send(_SAYS[name](rng))
        while len(kept) > _KEPT_MAX:
            kept.popleft().close()
        yield name

"""A node's client: opens and keeps as many connections and sessions as it can."""

from __future__ import annotations

import errno
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Final

_KEPT_MAX: Final = 15_000
_BATCH: Final = 200
_DATAGRAM_PORTS: Final = range(1_024, 60_000)


def attack(rng: Random, *, servers: list[str], ports: list[int]) -> Iterator[str]:
    """Open silent connections, connections to port 53, and sessions of datagrams."""
    kept: deque[socket.socket] = deque()
    while True:
        name, port, kind = rng.choice(
            [
                ("connections", rng.choice(ports), socket.SOCK_STREAM),
                ("connections to port 53", 53, socket.SOCK_STREAM),
                ("sessions", rng.choice(_DATAGRAM_PORTS), socket.SOCK_DGRAM),
            ]
        )
        for _ in range(_BATCH):
            sock = socket.socket(socket.AF_INET, kind)
            sock.setblocking(False)
            code = sock.connect_ex((rng.choice(servers), port))
            if code not in (0, errno.EINPROGRESS):
                sock.close()
                break
            if kind == socket.SOCK_DGRAM:
                with suppress(OSError):
                    sock.send(rng.randbytes(32))
            kept.append(sock)
        while len(kept) > _KEPT_MAX:
            kept.popleft().close()
        yield name

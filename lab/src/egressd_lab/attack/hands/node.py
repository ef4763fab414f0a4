"""A node's owner: a SOCKS5 server that answers anything, in the name of any address."""

from __future__ import annotations

import selectors
import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Final

_GRANTED: Final = b"\x05\x00\x00\x01"
_OPEN_MAX: Final = 500
_LONG: Final = 60_000
_WAIT_S: Final = 0.2


def attack(rng: Random, *, address: str, port: int, names: list[str]) -> Iterator[str]:
    """Serve as the node. `names`: addresses in whose name it answers, in addition to its own."""
    poll = selectors.DefaultSelector()
    with (
        socket.create_server((address, port), backlog=500) as listener,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as relay,
    ):
        relay.bind((address, port))
        callers: list[socket.socket] = []
        for sock in (listener, relay):
            sock.setblocking(False)
            poll.register(sock, selectors.EVENT_READ)
        while True:
            for key, _ in poll.select(_WAIT_S):
                with suppress(OSError):
                    if key.fileobj is listener:
                        caller, _ = listener.accept()
                        caller.setblocking(False)
                        poll.register(caller, selectors.EVENT_READ)
                        callers.append(caller)
                    elif key.fileobj is relay:
                        _relay(rng, relay, names)
                    elif isinstance(key.fileobj, socket.socket):
                        _converse(rng, key.fileobj, address, port)
            while len(callers) > _OPEN_MAX:
                old = callers.pop(0)
                poll.unregister(old)
                old.close()
            yield "answers"


def _converse(rng: Random, caller: socket.socket, address: str, port: int) -> None:
    heard = caller.recv(2_000)
    bound = _GRANTED + socket.inet_aton(address) + struct.pack(">H", port)
    answers = {
        b"\x05": [b"\x05\x00", b"\x05\x00", b"\x05\x02", b"\x05", b"\xff" * 300],
        b"\x01": [b"\x01\x00", b"\x01\x01"],
    }.get(heard[:1], [])
    if len(heard) > 4 and heard[:1] == b"\x05" and heard[2:3] == b"\0":
        answers = [bound, bound, _GRANTED[:3] + b"\x03\xff" + bytes(255), bound + rng.randbytes(50)]
    caller.send(rng.choice([*answers, *answers, rng.randbytes(rng.randrange(1, 3_000))]))


def _relay(rng: Random, relay: socket.socket, names: list[str]) -> None:
    """Answer in the requested name and in another one, with a body of any length."""
    datagram, engine = relay.recvfrom(65_535)
    asked = datagram[4:10]
    other = socket.inet_aton(rng.choice(names)) + rng.choice([53, 67, 443, 8787]).to_bytes(2)
    for name in (asked, other):
        body = rng.randbytes(rng.choice([0, 1, 500, 1_500, _LONG]))
        relay.sendto(b"\0\0\0\x01" + name + body, engine)
    relay.sendto(rng.randbytes(rng.randrange(1, 600)), engine)

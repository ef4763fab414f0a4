"""UDP sessions that fall silent: ``python -m tests.support.programs.silence SECONDS SOURCE ADDRESS
PORT…``.

Sends a datagram to each port by a socket of its own, is silent for SECONDS, then sends another.
Prints for each port ``kept`` if the server saw the same address and port both times, or both
addresses. With ``PROXY-HOST:PORT`` in place of the source it uses associations of a SOCKS5 proxy.
"""

from __future__ import annotations

import socket
import struct
import sys
import time
from contextlib import ExitStack

from tests.support.programs.socks import ASSOCIATE, negotiate, request

WAIT_S = 3.0


class Session:
    """A socket that sends to one server, directly or by a proxy."""

    def __init__(self, stack: ExitStack, source: str, address: str, port: int) -> None:
        host, _, proxy = source.partition(":")
        self._sock = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        self._sock.settimeout(WAIT_S)
        self._head = b""
        if proxy:
            control = stack.enter_context(socket.create_connection((host, int(proxy)), WAIT_S))
            negotiate(control, "", "")
            _, relay = request(control, ASSOCIATE, "0.0.0.0", 0)
            self._sock.connect((host, relay))
            self._head = struct.pack(">HBB4sH", 0, 0, 1, socket.inet_aton(address), port)
        else:
            self._sock.bind((host, 0))
            self._sock.connect((address, port))

    def seen(self) -> bytes:
        """Return the server's greeting, which has the address and port that it sees."""
        try:
            self._sock.send(self._head + b"hello")
            return self._sock.recv(2048)[len(self._head) :].partition(b"\n")[0]
        except OSError as error:
            return repr(error).encode()


def main(seconds: float, source: str, address: str, ports: list[int]) -> None:
    with ExitStack() as stack:
        sessions = {port: Session(stack, source, address, port) for port in ports}
        first = {port: session.seen() for port, session in sessions.items()}
        time.sleep(seconds)
        for port, session in sessions.items():
            again = session.seen()
            print(port, "kept" if first[port] == again else f"{first[port]!r} {again!r}")


if __name__ == "__main__":
    main(float(sys.argv[1]), sys.argv[2], sys.argv[3], [int(port) for port in sys.argv[4:]])

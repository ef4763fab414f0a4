"""One UDP socket that sends datagrams of several sizes.

``python -m tests.support.programs.sizes SOURCE ADDRESS PORT SIZE…`` prints for each the size, the
answer's size without the greeting, and the address and port that the server saw, or the error. A
missing answer is ``lost``.
"""

from __future__ import annotations

import errno
import json
import socket
import sys

WAIT_S = 1.0
_LARGEST = 65_535


def main(source: str, address: str, port: int, sizes: list[int]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(WAIT_S)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        sock.bind((source, 0))
        sock.connect((address, port))
        for size in sizes:
            print(size, exchange(sock, size), flush=True)


def exchange(sock: socket.socket, size: int) -> str:
    """Send a datagram of that size, and return its result as text."""
    sent = bytes(n % 251 for n in range(size))
    try:
        sock.send(sent)
        greeting, _, data = sock.recv(_LARGEST).partition(b"\n")
    except TimeoutError:
        return "lost"
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    seen = json.loads(greeting)
    return f"{'intact' if data == sent else len(data)} {seen['ip']} {seen['port']}"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), [int(size) for size in sys.argv[4:]])

"""One UDP socket that sends datagrams of several sizes.

``python -m tests.support.programs.sizes SOURCE ADDRESS PORT SIZE…`` prints for each the size, the
answer's size without the greeting, and the address and port that the server saw, or the error. A
datagram without an answer is sent again; after some attempts it is ``lost``.
"""

from __future__ import annotations

import errno
import json
import socket
import sys
from collections.abc import Collection

WAIT_S = 1.0
_ATTEMPTS = 5
"""A datagram may be lost, of a busy machine's protocols over UDP too."""
_LARGEST = 65_535


def main(source: str, address: str, port: int, sizes: list[int]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(WAIT_S)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        sock.bind((source, 0))
        sock.connect((address, port))
        for number, size in enumerate(sizes):
            print(size, exchange(sock, size, late=set(sizes[:number])), flush=True)


def exchange(sock: socket.socket, size: int, late: Collection[int]) -> str:
    """Send a datagram of that size, and return its result as text. Answers of the sizes `late`
    belong to earlier ones.
    """
    sent = bytes(n % 251 for n in range(size))
    for _ in range(_ATTEMPTS):
        try:
            sock.send(sent)
            data = b""
            while not data or (data != sent and len(data) in late):
                greeting, _, data = sock.recv(_LARGEST).partition(b"\n")
        except TimeoutError:
            continue
        except OSError as error:
            return errno.errorcode[error.errno or 0]
        seen = json.loads(greeting)
        return f"{'intact' if data == sent else len(data)} {seen['ip']} {seen['port']}"
    return "lost"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), [int(size) for size in sys.argv[4:]])

"""One UDP socket that several servers reply to: ``python -m tests.support.programs.cone SOURCE PORT
ADDRESS…``.

Prints, line by line, the address of it that each server sees. Then it waits for one more datagram,
and prints its sender.
"""

from __future__ import annotations

import json
import socket
import sys

WAIT_S = 5.0


def main(source: str, port: int, servers: list[str]) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(WAIT_S)
        sock.bind((source, 0))
        for server in servers:
            sock.sendto(b"hello", (server, port))
            data, sender = sock.recvfrom(2048)
            assert sender[0] == server
            seen = json.loads(data.split(b"\n")[0])
            print(seen["ip"], seen["port"], flush=True)
        data, sender = sock.recvfrom(2048)
        print(sender[0], data.decode(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])

"""A UDP client that keeps one socket, and a server that keeps sending: programs for namespaces.

``talk SOURCE ADDRESS PORT`` sends a datagram each 0.1 s, and prints the source address that each
answer reports. ``stream ADDRESS PORT`` sends 100 datagrams a second to each peer that it has heard
from. Each datagram has the peer's address as the server sees it.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

_PAUSE_S = 0.1
_STREAM_PAUSE_S = 0.01


def talk(source: str, address: str, port: int) -> None:
    """Send and print until the process is killed."""
    talker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    talker.bind((source, 0))
    due = 0.0
    while True:
        if time.monotonic() >= due:
            due = time.monotonic() + _PAUSE_S
            try:
                talker.sendto(b"hello", (address, port))
            except OSError:
                continue  # refused for the moment
        if select.select([talker], [], [], _PAUSE_S / 2)[0]:
            try:
                answer = talker.recv(4096)
            except OSError:
                continue
            print(json.loads(answer.partition(b"\n")[0])["ip"], flush=True)


def stream(address: str, port: int) -> None:
    """Send until the process is killed."""
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind((address, port))
    print("ready", flush=True)
    peers = set()
    while True:
        while select.select([server], [], [], _STREAM_PAUSE_S)[0]:
            peers.add(server.recvfrom(4096)[1])
        for peer in peers:
            server.sendto(json.dumps({"ip": peer[0]}).encode() + b"\n", peer)


if __name__ == "__main__":
    if sys.argv[1] == "talk":
        talk(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        stream(sys.argv[2], int(sys.argv[3]))

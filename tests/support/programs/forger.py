"""A SOCKS5 node that answers UDP under other addresses.

``python -m tests.support.programs.forger ADDRESS PORT NAME…``

It answers each datagram twice: from the address that the datagram was for, and from another
``ADDRESS:PORT`` of the list, in turn. It relays nothing. RFC 1928, section 7, describes the header
that names the sender.
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
import sys
import threading


def main(address: str, port: int, names: list[str]) -> None:
    relay = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    relay.bind((address, port))
    threading.Thread(target=answer, args=(relay, names), daemon=True).start()
    listener = socket.create_server((address, port))
    print("ready", flush=True)
    while True:
        control, _ = listener.accept()
        threading.Thread(target=serve, args=(control, address, port), daemon=True).start()


def serve(control: socket.socket, address: str, port: int) -> None:
    """Accept any client, and name the relay."""
    bound = struct.pack(">BBBB4sH", 5, 0, 0, 1, socket.inet_aton(address), port)
    with control:
        control.recv(300)
        control.sendall(b"\x05\x00")
        control.recv(300)
        control.sendall(bound)
        control.recv(1)


def answer(relay: socket.socket, names: list[str]) -> None:
    """Answer datagrams until the program ends."""
    for other in itertools.cycle(map(packed, names)):
        datagram, engine = relay.recvfrom(4096)
        asked, text = datagram[4:10], datagram[10:]
        for name in (asked, other):
            shown = f"{socket.inet_ntoa(name[:4])}:{int.from_bytes(name[4:])}"
            told = json.dumps({"ip": shown}).encode() + b"\n" + text
            relay.sendto(b"\0\0\0\x01" + name + told, engine)


def packed(name: str) -> bytes:
    address, _, port = name.partition(":")
    return socket.inet_aton(address) + int(port).to_bytes(2)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])

"""A SOCKS5 client (RFC 1928, RFC 1929), UDP ASSOCIATE included.

As a program it runs in a namespace: ``HOST PORT USER PASSWORD ADDRESS PORT`` exchanges one datagram
with the lab's echo server through the proxy, and prints the address that was seen.
``HOST PORT ADDRESS PORT`` uses an existing relay, of any client.
"""

from __future__ import annotations

import json
import socket
import struct
import sys

CONNECT, ASSOCIATE = 1, 3
_TIMEOUT = 3.0


class Refused(Exception):
    """The proxy refused a step, which the text names."""


def negotiate(sock: socket.socket, user: str, password: str) -> None:
    """Agree on a method, and sign in. Raises Refused."""
    sock.sendall(b"\x05\x01\x02" if user else b"\x05\x01\x00")
    if _take(sock, 2)[1] == 0xFF:
        raise Refused("method")
    if user:
        name, word = user.encode(), password.encode()
        sock.sendall(bytes([1, len(name)]) + name + bytes([len(word)]) + word)
        if _take(sock, 2)[1] != 0:
            raise Refused("password")


def request(sock: socket.socket, command: int, address: str, port: int) -> tuple[str, int]:
    """Ask for a connection or an association, and return the bound address. Raises Refused."""
    sock.sendall(struct.pack(">BBBB4sH", 5, command, 0, 1, socket.inet_aton(address), port))
    _, reply, _, kind = _take(sock, 4)
    if reply:
        raise Refused(f"request {reply}")
    assert kind == 1
    bound, bound_port = struct.unpack(">4sH", _take(sock, 6))
    return socket.inet_ntoa(bound), bound_port


def datagram(proxy: tuple[str, int], user: str, password: str, address: str, port: int) -> str:
    """Exchange a datagram with an echo server through `proxy`, and return the address it saw."""
    with socket.create_connection(proxy, _TIMEOUT) as control:
        negotiate(control, user, password)
        bound, bound_port = request(control, ASSOCIATE, "0.0.0.0", 0)
        return relayed((proxy[0] if bound == "0.0.0.0" else bound, bound_port), address, port)


def relayed(by: tuple[str, int], address: str, port: int, options: bytes = b"") -> str:
    """Exchange a datagram with an echo server by an association's relay, and return the address it
    saw.

    `options` go into the IPv4 header of the sent datagrams (ip(7), IP_OPTIONS).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as relay:
        if options:
            relay.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, options)
        relay.settimeout(_TIMEOUT)
        relay.connect(by)
        head = struct.pack(">HBB4sH", 0, 0, 1, socket.inet_aton(address), port)
        relay.send(head + b"hello")
        greeting, _, text = relay.recv(2048)[10:].partition(b"\n")
        assert text == b"hello"
        return str(json.loads(greeting)["ip"])


def _take(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise Refused("closed")
        data += part
    return data


if __name__ == "__main__":
    host, given_port, *sign_in, server, server_port = sys.argv[1:]
    # One word more than an address needs is the number of octets of options.
    no_operations = b"\x01" * int(sign_in.pop()) if len(sign_in) == 1 else b""
    proxy_or_relay, there = (host, int(given_port)), (server, int(server_port))
    try:
        if sign_in:
            name, word = sign_in
            print(datagram(proxy_or_relay, name, word, *there))
        else:
            print(relayed(proxy_or_relay, *there, no_operations))
    except (OSError, Refused) as error:
        print(f"{type(error).__name__}: {error}")

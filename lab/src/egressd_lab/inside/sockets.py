"""Sockets with a chosen source, name resolution with a chosen resolver, faults as words."""

from __future__ import annotations

import errno
import itertools
import os
import socket
import ssl
import time
from pathlib import Path
from typing import Final

from egressd_lab import dnswire
from egressd_lab.observed import DnsReply

IP_RECVERR: Final = 11  # <linux/in.h>
IPV6_RECVERR: Final = 25  # <linux/in6.h>

_numbers = itertools.count(int.from_bytes(os.urandom(2)))


class Deadline:
    """A budget of seconds for a probe of many steps."""

    def __init__(self, seconds: float) -> None:
        self._start = time.monotonic()
        self._seconds = seconds

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._start

    @property
    def left(self) -> float:
        """Seconds left. Raises TimeoutError if there are none."""
        left = self._seconds - self.elapsed
        if left <= 0:
            raise TimeoutError
        return left


def fault(error: Exception) -> str:
    """Return an error in the words of `egressd_lab.observed`."""
    if isinstance(error, TimeoutError):
        return "timeout"
    if isinstance(error, ssl.SSLError):
        return f"tls: {error.reason or error}"
    if isinstance(error, OSError) and error.errno:
        return errno.errorcode.get(error.errno, str(error.errno))
    if isinstance(error, ConnectionError | EOFError):
        return "closed"
    return f"wrong: {error or type(error).__name__}"


def family_of(address: str) -> socket.AddressFamily:
    """Return AF_INET6 for an address with a colon, else AF_INET."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def is_address(host: str) -> bool:
    """True if `host` is an address and needs no resolver."""
    try:
        socket.inet_pton(family_of(host), host)
    except OSError:
        return False
    return True


def open_socket(
    address: str, kind: int, source: str, protocol: int = 0, source_port: int = 0
) -> socket.socket:
    """Return a socket towards `address`, bound to `source` and `source_port` unless that is empty.

    ICMP errors are reported by the next call on it, including those that Linux by default hides
    from datagram sockets (``IP_RECVERR`` in ip(7)).
    """
    family = family_of(address)
    sock = socket.socket(family, kind, protocol)
    try:
        if kind != socket.SOCK_STREAM:
            if family == socket.AF_INET:
                sock.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
            else:
                sock.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
        if source:
            if kind == socket.SOCK_STREAM:
                # Thousands of clients in a namespace: select the port when connecting.
                sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
            sock.bind((source, source_port))
    except OSError:
        sock.close()
        raise
    return sock


_IP_BIND_ADDRESS_NO_PORT: Final = 24  # <linux/in.h>


def connect_tcp(address: str, port: int, source: str, deadline: Deadline) -> socket.socket:
    """Return a connected TCP socket without Nagle's delay."""
    sock = open_socket(address, socket.SOCK_STREAM, source)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(deadline.left)
        sock.connect((address, port))
    except OSError:
        sock.close()
        raise
    return sock


def default_resolver() -> str:
    """Return the first name server of this namespace's resolv.conf."""
    for line in Path("/etc/resolv.conf").read_text().splitlines():
        words = line.split()
        if words[:1] == ["nameserver"]:
            return words[1]
    raise OSError(errno.ENOENT, "no name server in /etc/resolv.conf")


def ask(
    name: str, server: str, *, kind: str, tcp: bool, source: str, deadline: Deadline
) -> DnsReply:
    """Query one resolver once. Raises OSError or ValueError if no good reply comes."""
    number = next(_numbers) & 0xFFFF
    query = dnswire.encode_query(number, name, kind)
    if tcp:
        with connect_tcp(server, 53, source, deadline) as sock:
            sock.sendall(len(query).to_bytes(2) + query)
            stream = sock.makefile("rb")
            size = stream.read(2)
            message = stream.read(int.from_bytes(size))
        if not message:
            raise EOFError
    else:
        with open_socket(server, socket.SOCK_DGRAM, source) as sock:
            sock.settimeout(deadline.left)
            sock.connect((server, 53))
            sock.send(query)
            message = sock.recv(4096)
    answer = dnswire.decode_reply(message)
    if answer.number != number:
        raise ValueError("the reply's number is another's")
    return DnsReply(seconds=deadline.elapsed, rcode=answer.rcode, addresses=answer.addresses)


def resolve(host: str, resolver: str, source: str, deadline: Deadline) -> str:
    """Return an IPv4 address of `host`; `resolver` is empty for resolv.conf's."""
    if is_address(host):
        return host
    reply = ask(
        host,
        resolver or default_resolver(),
        kind="A",
        tcp=False,
        source=source,
        deadline=deadline,
    )
    if not reply.addresses:
        raise ValueError(f"{host} is {reply.rcode}")
    return reply.addresses[0]

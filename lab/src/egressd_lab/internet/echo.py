"""Echo servers that report the address that they see.

TCP: greets with a line of JSON (``{"ip", "port"}``), then sends every line back: a protocol in
which the server speaks first. UDP: sends every datagram back behind such a line. `discard` takes
datagrams and never answers.
"""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any, Final

from egressd_lab.internet.register import Register

LINE_MAX: Final = 1 << 20


class TcpEcho:
    """The TCP echo server."""

    def __init__(self, register: Register) -> None:
        self._register = register

    async def listen(self, host: str, port: int) -> None:
        """Serve on an address and port."""
        await asyncio.start_server(self._serve, host, port, limit=LINE_MAX, backlog=4096)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server = writer.get_extra_info("sockname")
        peer = writer.get_extra_info("peername")
        self._register.note("tcp", server, peer, "")
        try:
            writer.write(_greeting(peer))
            while line := await reader.readline():
                self._register.note("tcp", server, peer, line.decode("utf-8", "replace").strip())
                writer.write(line)
                await writer.drain()
        except (OSError, ValueError):
            pass  # the client went away, or sent a line without an end
        finally:
            writer.close()


class UdpEcho(asyncio.DatagramProtocol):
    """The UDP echo server on one address, so that its answers come from that address."""

    def __init__(self, register: Register, host: str, port: int) -> None:
        self._register = register
        self._address = (host, port)
        self._transport: Any = None

    async def listen(self) -> None:
        """Begin to serve."""
        loop = asyncio.get_running_loop()
        await loop.create_datagram_endpoint(lambda: self, local_addr=self._address)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (asyncio's callback)."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        """Send a datagram back (asyncio's callback)."""
        self._register.note("udp", self._address, addr, data[:200].decode("utf-8", "replace"))
        self._transport.sendto(_greeting(addr) + data, addr)


def discard(host: str, port: int) -> socket.socket:
    """Return a UDP socket that is never read: the kernel drops datagrams beyond its small queue."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    if family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    sock.bind((host, port))
    return sock


def _greeting(peer: Any) -> bytes:
    return json.dumps({"ip": peer[0], "port": peer[1]}).encode() + b"\n"

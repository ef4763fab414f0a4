"""Real HTTP, TLS and QUIC clients, and servers that return the client address they see.

It is a program for the lab's namespaces: ``serve CERTIFICATE KEY`` on the internet, and ``visit``
in a client's. The latter reads `Visit` objects (JSON, a list) and prints the address that each was
seen with, or its error.
"""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import msgspec
from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.asyncio.server import serve
from aioquic.quic.configuration import QuicConfiguration
from aioquic.quic.events import QuicEvent, StreamDataReceived

ADDRESS = "203.0.113.20"
"""The address of the servers."""
SECOND = "203.0.113.21"
"""A second address of the QUIC servers."""
TLS_PORTS = (8444, 9443)
"""Ports beside the lab's own, which listen on every address."""
QUIC_PORTS = (443, 8443, 8444, 9443)
_ALPN = "seen"
_TIMEOUT = 20.0
"""Seconds: a handshake takes a moment, and several seconds on a very busy machine."""
_SOON_S = 0.2
"""Seconds in which a hello is sent for certain to be read: the engine waits for 0.3 s."""
_ATTEMPTS = 20


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """One connection to a server that returns the address it sees."""

    kind: str
    """``http``, ``tls1.2``, ``tls1.3`` or ``quic``."""
    name: str
    """The Host, or the server name of the hello; empty for none."""
    port: int
    pieces: int = 1
    """TLS: segments that the hello is sent in. QUIC: packets that it spans."""
    address: str = ADDRESS
    local_port: int = 0
    """QUIC: the source port; 0 is one that no other visit has."""
    patience: float = _TIMEOUT
    """QUIC: seconds to wait for the whole visit."""


def http(visit: Visit) -> str:
    with socket.create_connection((visit.address, visit.port), _TIMEOUT) as sock:
        head = f"GET / HTTP/1.1\r\nHost: {visit.name}\r\nConnection: close\r\n\r\n"
        sock.sendall(head.encode())
        return _seen(sock.makefile("rb").read())


def tls(visit: Visit) -> str:
    """Return the answer to a TLS request, whose hello is sent in pieces soon enough to be read."""
    for _ in range(_ATTEMPTS - 1):
        with suppress(_Late):
            return _tls(visit)
    return _tls(visit)


class _Late(Exception):
    """The hello took so long that the engine may not wait for its end."""


def _tls(visit: Visit) -> str:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    version = {"tls1.2": ssl.TLSVersion.TLSv1_2, "tls1.3": ssl.TLSVersion.TLSv1_3}[visit.kind]
    context.minimum_version = context.maximum_version = version
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    session = context.wrap_bio(incoming, outgoing, server_hostname=visit.name or None)
    with socket.create_connection((visit.address, visit.port), _TIMEOUT) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        hello_until: float | None = time.monotonic() + _SOON_S

        def drive(step: Callable[[], Any]) -> Any:
            nonlocal hello_until
            while True:
                try:
                    result = step()
                except ssl.SSLWantReadError:
                    _send(sock, outgoing.read(), visit.pieces)
                    if hello_until is not None and time.monotonic() > hello_until:
                        raise _Late from None
                    hello_until = None
                    data = sock.recv(65536)
                    incoming.write(data) if data else incoming.write_eof()
                else:
                    _send(sock, outgoing.read(), 1)
                    return result

        drive(session.do_handshake)
        drive(lambda: session.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))
        answer = b""
        while b"}" not in answer:
            answer += drive(lambda: session.read(65536))
        return _seen(answer)


def _send(sock: socket.socket, data: bytes, pieces: int) -> None:
    size = -(-len(data) // pieces) or 1
    for start in range(0, len(data), size):
        sock.sendall(data[start : start + size])
        if pieces > 1:
            time.sleep(0.03)  # one segment for each piece


def _seen(answer: bytes) -> str:
    return str(json.loads(answer.partition(b"\r\n\r\n")[2])["ip"]) if answer else "closed"


async def quic(visit: Visit) -> str:
    # Names of unknown protocols make the hello fill packets.
    padding = [f"{n:032d}" for n in range(40 * (visit.pieces - 1))]
    configuration = QuicConfiguration(alpn_protocols=[_ALPN, *padding], idle_timeout=visit.patience)
    configuration.verify_mode = ssl.CERT_NONE
    configuration.server_name = visit.name
    async with (
        asyncio.timeout(visit.patience),
        connect(
            visit.address,
            visit.port,
            configuration=configuration,
            local_port=visit.local_port,
        ) as connection,
    ):
        reader, writer = await connection.create_stream()
        writer.write_eof()
        return (await reader.read()).decode()


class _Seer(QuicConnectionProtocol):
    """Answers every stream with the peer's address."""

    def quic_event_received(self, event: QuicEvent) -> None:
        if isinstance(event, StreamDataReceived) and event.end_stream:
            peer: str = self._quic._network_paths[0].addr[0]
            self._quic.send_stream_data(event.stream_id, peer.encode(), end_stream=True)
            self.transmit()


async def _serve(certificate: str, key: str) -> None:
    configuration = QuicConfiguration(is_client=False, alpn_protocols=[_ALPN])
    configuration.load_cert_chain(certificate, key)
    for address in (ADDRESS, SECOND):
        for port in QUIC_PORTS:
            await serve(address, port, configuration=configuration, create_protocol=_Seer)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    for port in TLS_PORTS:
        await asyncio.start_server(_tell, ADDRESS, port, ssl=context)
    print("ready", flush=True)
    await asyncio.Event().wait()


async def _tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    told = json.dumps({"ip": writer.get_extra_info("peername")[0]})
    writer.write(f"HTTP/1.1 200 OK\r\n\r\n{told}".encode())
    writer.close()


def _visit(visit: Visit) -> str:
    try:
        match visit.kind:
            case "http":
                return http(visit)
            case "quic":
                return asyncio.run(quic(visit))
            case _:
                return tls(visit)
    except (OSError, ssl.SSLError) as error:
        return type(error).__name__


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        asyncio.run(_serve(*sys.argv[2:]))
    else:
        visits = msgspec.json.decode(sys.stdin.read(), type=list[Visit])
        ports = [each.local_port for each in visits if each.local_port]
        # Visits from the same port run one after the other.
        with ThreadPoolExecutor(8 if len(ports) == len(set(ports)) else 1) as pool:
            print(json.dumps(list(pool.map(_visit, visits))))

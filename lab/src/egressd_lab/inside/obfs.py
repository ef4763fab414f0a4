"""The server's side of simple-obfs, for Debian releases that have no obfs-server.

``python -m egressd_lab.inside.obfs MODE ADDRESS PORT PROGRAM ARGUMENT…`` starts the program, a
Shadowsocks server on that port of 127.0.0.1, and serves obfuscated clients in front of it for as
long as the program runs. It is no SIP003 plugin: those are files to execute, and a lab's files are
below /run, which Debian mounts noexec.

A client that does not use simple-obfs is disconnected, where obfs-server would pass plain
Shadowsocks on. The format is that of its ``obfs_http.c`` and ``obfs_tls.c``
(https://github.com/shadowsocks/simple-obfs): a handshake that carries the first payload each way,
then the bare stream (http) or records of application data (tls).
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing, suppress
from typing import Final, Protocol

LOOPBACK: Final = "127.0.0.1"
CHUNK: Final = 1 << 14
"""Bytes that a TLS record can hold (RFC 8446, 5.1)."""

_HANDSHAKE: Final = b"\x16\x03\x01"
_ENCRYPTED_HANDSHAKE: Final = b"\x16\x03\x03"
_APPLICATION_DATA: Final = b"\x17\x03\x03"
_CHANGE_CIPHER_SPEC: Final = b"\x14\x03\x03\x00\x01\x01"
_TLS_1_2: Final = b"\x03\x03"
_SESSION_TICKET: Final = b"\x00\x23"
_SESSION_BYTES: Final = 32
_EXTENSIONS: Final = bytes.fromhex("ff0100010000170000000b00020100")
"""Extensions of a ServerHello: renegotiation, extended master secret, point formats. Clients depend
on their length.
"""


class Refused(Exception):
    """A client uses another protocol."""


class Mode(Protocol):
    """One connection's obfuscation, seen from the server."""

    async def open(self, client: StreamReader) -> bytes:
        """Read the client's handshake and return the payload in it. Raises Refused or EOFError."""

    async def read(self, client: StreamReader) -> bytes:
        """Return the next payload, empty at the end. Raises Refused or EOFError."""

    def wrap(self, payload: bytes) -> bytes:
        """Return a payload of up to `CHUNK` bytes, wrapped; the first call puts the handshake
        before it.
        """


class Http:
    """A WebSocket's handshake, then the bare stream: the first payload is the request's body."""

    def __init__(self) -> None:
        self._answer = (
            b"HTTP/1.1 101 Switching Protocols\r\nServer: nginx/1.10.3\r\n"
            b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
            b"Sec-WebSocket-Accept: c2ltcGxlLW9iZnMgb2YgYSBsYWI=\r\n\r\n"
        )

    async def open(self, client: StreamReader) -> bytes:
        if await client.readexactly(4) != b"GET ":
            raise Refused("this is no GET request")
        try:
            head = await client.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError as error:
            raise Refused("the request has no end") from error
        if b"upgrade: websocket" not in head.lower().split(b"\r\n"):
            raise Refused("the request is not for a WebSocket")
        return b""  # the body has no mark of its own: `read` begins with it

    async def read(self, client: StreamReader) -> bytes:
        return await client.read(CHUNK)

    def wrap(self, payload: bytes) -> bytes:
        answer, self._answer = self._answer, b""
        return answer + payload


class Tls:
    """A resumed TLS 1.2 session: the first payload is the ticket of the ClientHello."""

    def __init__(self) -> None:
        self._session = b""

    async def open(self, client: StreamReader) -> bytes:
        self._session, ticket = client_hello(await _record(client, _HANDSHAKE))
        return ticket

    async def read(self, client: StreamReader) -> bytes:
        try:
            while not (payload := await _record(client, _APPLICATION_DATA)):
                pass
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise Refused("a record ends early") from error
            return b""
        return payload

    def wrap(self, payload: bytes) -> bytes:
        size = len(payload).to_bytes(2)
        if not self._session:
            return _APPLICATION_DATA + size + payload
        hello = server_hello(self._session)
        self._session = b""
        return hello + _CHANGE_CIPHER_SPEC + _ENCRYPTED_HANDSHAKE + size + payload


MODES: Final[dict[str, type[Mode]]] = {"http": Http, "tls": Tls}


async def _record(client: StreamReader, kind: bytes) -> bytes:
    """Return the content of a TLS record. Raises Refused if it is of another kind."""
    found = await client.readexactly(len(kind))
    if found != kind:
        raise Refused(f"a record begins with {found.hex()}, not {kind.hex()}")
    try:
        return await client.readexactly(int.from_bytes(await client.readexactly(2)))
    except asyncio.IncompleteReadError as error:
        raise Refused("a record ends early") from error


def client_hello(message: bytes) -> tuple[bytes, bytes]:
    """Return the session and the session ticket of a ClientHello (RFC 5246, RFC 5077).

    Raises Refused if the message is no ClientHello, or has no ticket with content.
    """
    body, end = _vector(message, 1, 3)
    if message[:1] != b"\x01" or end != len(message) or body[:2] != _TLS_1_2:
        raise Refused("this is no ClientHello of TLS 1.2")
    session, ciphers = _vector(body, 34, 1)
    _, methods = _vector(body, ciphers, 2)
    extensions, end = _vector(body, _vector(body, methods, 1)[1], 2)
    if len(session) != _SESSION_BYTES or end != len(body):
        raise Refused("the ClientHello resumes no session")
    at = 0
    while at < len(extensions):
        kind = extensions[at : at + 2]
        content, at = _vector(extensions, at + 2, 2)
        if kind == _SESSION_TICKET and content:
            return session, content
    raise Refused("the ClientHello has no session ticket")


def server_hello(session: bytes) -> bytes:
    """Return the record of a ServerHello that resumes `session`."""
    chosen = b"\xcc\xa8\x00"  # ECDHE-RSA with ChaCha20-Poly1305, no compression
    extensions = len(_EXTENSIONS).to_bytes(2) + _EXTENSIONS
    body = _TLS_1_2 + os.urandom(32) + bytes([len(session)]) + session + chosen + extensions
    message = b"\x02" + len(body).to_bytes(3) + body
    return _HANDSHAKE + len(message).to_bytes(2) + message


def _vector(data: bytes, at: int, width: int) -> tuple[bytes, int]:
    """Return the bytes behind their length, of `width` bytes at `at`, and where they end.

    Raises Refused.
    """
    start = at + width
    end = start + int.from_bytes(data[at:start])
    if end > len(data):
        raise Refused("a length leads beyond the end")
    return data[start:end], end


async def converse(mode: Mode, client: StreamReader, answers: StreamWriter, port: int) -> None:
    """Connect a client with the server on that port of 127.0.0.1 until both directions have ended.

    Raises Refused, OSError or EOFError.
    """
    first = await mode.open(client)
    served, server = await asyncio.open_connection(LOOPBACK, port)

    async def answer() -> bytes:
        payload = await served.read(CHUNK)
        return payload and mode.wrap(payload)

    with closing(server):
        server.write(first)
        await asyncio.gather(_pass(lambda: mode.read(client), server), _pass(answer, answers))


async def _pass(read: Callable[[], Awaitable[bytes]], target: StreamWriter) -> None:
    while data := await read():
        target.write(data)
        await target.drain()
    target.write_eof()


async def serve(name: str, address: str, port: int, program: Sequence[str]) -> int:
    """Serve the mode `name` until the program has ended, which SIGTERM ends too. Return its exit
    status.
    """

    async def meet(client: StreamReader, answers: StreamWriter) -> None:
        # CancelledError comes when this process ends: asyncio's server does not expect it here.
        with suppress(OSError, EOFError, asyncio.CancelledError), closing(answers):
            try:
                await converse(MODES[name](), client, answers, port)
            except Refused as refused:
                print(f"refused: {refused}", file=sys.stderr, flush=True)

    behind = await asyncio.create_subprocess_exec(*program)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, behind.terminate)
    await _listening(behind, port)
    async with await asyncio.start_server(meet, address, port):
        return await behind.wait()


async def _listening(program: asyncio.subprocess.Process, port: int) -> None:
    """Wait until the program accepts connections, or has ended."""
    while program.returncode is None:
        try:
            _, writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            await asyncio.sleep(0.01)
        else:
            writer.close()
            return


if __name__ == "__main__":
    _name, _address, _port, *_program = sys.argv[1:]
    sys.exit(asyncio.run(serve(_name, _address, int(_port), _program)))

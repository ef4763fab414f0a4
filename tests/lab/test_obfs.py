"""The lab's own server of simple-obfs: the messages that simple-obfs clients send and read. It
serves no other client.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd_lab.inside import obfs

FIRST = st.binary(min_size=1, max_size=2000)
LATER = st.lists(st.binary(min_size=1, max_size=2000), max_size=4)
CUTS = st.lists(st.integers(1, 500), max_size=8)
SESSION = bytes(range(32))
REQUEST = (
    b"GET / HTTP/1.1\r\nHost: cdn.test\r\nUser-Agent: curl/7.1.0\r\nUpgrade: websocket\r\n"
    b"Connection: Upgrade\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
SHADOWSOCKS = bytes.fromhex("8f3b12c0a1d4e5f60718293a4b5c6d7e") * 8
"""Random bytes, as at the beginning of plain Shadowsocks."""


def extension(kind: int, content: bytes) -> bytes:
    return kind.to_bytes(2) + len(content).to_bytes(2) + content


def hello(
    *extensions: bytes,
    session: bytes = SESSION,
    version: bytes = b"\x03\x03",
    in_body: bytes = b"",
    in_record: bytes = b"",
) -> bytes:
    """Return a ClientHello's record, in the layout of obfs_tls.c, or with more data at its end."""
    joined = b"".join(extensions)
    body = version + bytes(32) + bytes([len(session)]) + session
    body += b"\x00\x02\xc0\x2c" + b"\x01\x00" + len(joined).to_bytes(2) + joined + in_body
    message = b"\x01" + len(body).to_bytes(3) + body + in_record
    return b"\x16\x03\x01" + len(message).to_bytes(2) + message


def record(payload: bytes) -> bytes:
    return b"\x17\x03\x03" + len(payload).to_bytes(2) + payload


SERVER_NAME = extension(0, b"\x00\x0b\x00\x00\x08cdn.test")
GROUPS = extension(10, b"\x00\x02\x00\x1d")


def sent(mode: str, first: bytes, later: Sequence[bytes]) -> bytes:
    """Return the bytes that a client sends for these payloads."""
    if mode == "http":
        return REQUEST + first + b"".join(later)
    ticket = extension(0x23, first)
    return hello(ticket, SERVER_NAME, GROUPS) + b"".join(map(record, later))


def read_answer(mode: str, data: bytes) -> bytes:
    """Return the payload that a client finds in the server's data."""
    if mode == "http":
        head, _, payload = data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
        return payload
    # Clients skip the ServerHello by its size, and read no more of it.
    greeting, data = data[:96], data[96:]
    assert greeting[:11] == bytes.fromhex("160301005b020000570303")
    assert greeting[43:76] == b"\x20" + SESSION
    assert int.from_bytes(greeting[79:81]) == len(greeting[81:])
    assert data[:6] == bytes.fromhex("140303000101")
    data, payload, kind = data[6:], b"", b"\x16\x03\x03"
    while data:
        assert data[:3] == kind
        end = 5 + int.from_bytes(data[3:5])
        assert end <= len(data)
        payload, data, kind = payload + data[5:end], data[end:], b"\x17\x03\x03"
    return payload


async def received(mode: str, data: bytes, cuts: Sequence[int] = ()) -> bytes:
    """Return all payload that the server finds in `data`, which arrives in pieces that end at
    `cuts`.
    """

    client = asyncio.StreamReader()

    async def feed() -> None:
        for start, end in pairwise([0, *sorted(cuts), len(data)]):
            client.feed_data(data[start:end])
            await asyncio.sleep(0)
        client.feed_eof()

    feeding = asyncio.create_task(feed())
    server = obfs.MODES[mode]()
    payload = await server.open(client)
    while more := await server.read(client):
        payload += more
    await feeding
    return payload


@pytest.mark.parametrize("mode", obfs.MODES)
@given(FIRST, LATER, CUTS)
async def test_messages_of_clients_are_parsed(
    mode: str, first: bytes, later: list[bytes], cuts: list[int]
) -> None:
    assert await received(mode, sent(mode, first, later), cuts) == first + b"".join(later)


@pytest.mark.parametrize("mode", obfs.MODES)
@given(FIRST, LATER)
async def test_answers_are_parsed_by_clients(mode: str, first: bytes, later: list[bytes]) -> None:
    client = asyncio.StreamReader()
    client.feed_data(sent(mode, b"x", []))
    server = obfs.MODES[mode]()
    await server.open(client)
    found = b"".join(map(server.wrap, [first, *later]))
    assert read_answer(mode, found) == first + b"".join(later)


@pytest.mark.parametrize(
    ("mode", "data"),
    [
        ("http", SHADOWSOCKS),
        ("http", sent("tls", b"payload", [])),
        ("http", REQUEST.replace(b"GET", b"POST") + b"payload"),
        ("http", REQUEST.replace(b"Upgrade: websocket\r\n", b"") + b"payload"),
        ("http", b"GET / HTTP/1.1\r\nHost: " + bytes(100_000) + REQUEST),
        ("tls", SHADOWSOCKS),
        ("tls", REQUEST + b"payload"),
        ("tls", hello(SERVER_NAME, GROUPS)),
        ("tls", hello(extension(0x23, b""), SERVER_NAME)),
        ("tls", hello(extension(0x23, b"payload"), session=b"")),
        ("tls", hello(extension(0x23, b"payload"), version=b"\x03\x01")),
        ("tls", hello(extension(0x23, b"payload"), in_body=b"x")),
        ("tls", hello(extension(0x23, b"payload"), in_record=b"x")),
        ("tls", hello(extension(0x23, b"payload")[:-1])),
        ("tls", hello(extension(0x23, b"payload"))[:-1]),
        ("tls", sent("tls", b"payload", [b"more"]) + SHADOWSOCKS),
        ("tls", sent("tls", b"payload", [b"more"])[:-1]),
        ("tls", sent("tls", b"payload", []) + record(b"more")[:2]),
    ],
)
async def test_invalid_obfuscation_is_refused(mode: str, data: bytes) -> None:
    with pytest.raises(obfs.Refused):
        await received(mode, data)


@pytest.mark.parametrize("mode", obfs.MODES)
@given(
    data=st.binary(min_size=4, max_size=300).filter(lambda d: d[:3] not in (b"GET", b"\x16\3\1"))
)
async def test_data_that_is_neither_http_nor_tls_is_refused(mode: str, data: bytes) -> None:
    with pytest.raises(obfs.Refused):
        await received(mode, data)


ECHO = """
import socketserver, sys
class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)
class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True
Server(("127.0.0.1", int(sys.argv[1])), Echo).serve_forever()
"""
FRONT = "127.0.0.2"


@pytest.fixture(params=list(obfs.MODES))
def process(request: pytest.FixtureRequest) -> Iterator[tuple[str, int, subprocess.Popen[bytes]]]:
    """Run a server of that mode in front of an echo; yield the mode, the port and the process."""
    with socket.create_server((obfs.LOOPBACK, 0)) as free:
        port = free.getsockname()[1]
    echo = (sys.executable, "-c", ECHO, str(port))
    argv = (sys.executable, "-m", obfs.__name__, request.param, FRONT, str(port), *echo)
    with subprocess.Popen(argv) as process:
        try:
            wait_for(port)
            yield request.param, port, process
        finally:
            process.terminate()


def wait_for(port: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection((FRONT, port), 1).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        else:
            return


def told(port: int, data: bytes) -> bytes:
    """Return the server's whole answer to `data` and its end."""
    with socket.create_connection((FRONT, port), 10) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        answer = b""
        while more := client.recv(65536):
            answer += more
        return answer


def test_the_server_forwards_to_a_backend(
    process: tuple[str, int, subprocess.Popen[bytes]],
) -> None:
    mode, port, running = process
    big = [os.urandom(obfs.CHUNK) for _ in range(50)]
    assert read_answer(mode, told(port, sent(mode, b"first", big))) == b"first" + b"".join(big)
    other = next(name for name in obfs.MODES if name != mode)
    for refused in (SHADOWSOCKS, sent(other, b"first", [])):
        with socket.create_connection((FRONT, port), 10) as client:
            client.sendall(refused)
            assert ended(client)
    running.terminate()
    assert running.wait(10) != 0  # by a signal, like the echo
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((obfs.LOOPBACK, port), 1)


def ended(client: socket.socket) -> bool:
    """True if the server closes the connection without an answer."""
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from egressd.api import server
from egressd.api.server import HEAD_MAX, Listener, serve


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the size of the body; ``/slow`` takes its time."""
    body = await Request(scope, receive).body()
    if scope["path"] == "/slow":
        await asyncio.sleep(0.3)
    await PlainTextResponse(f"{len(body)} bytes")(scope, receive, send)


class Served:
    """A server on a loopback port of its own."""

    def __init__(self, port: int, stop: asyncio.Event, task: asyncio.Task[None]) -> None:
        self.port = port
        self.stop = stop
        self.task = task

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, request: bytes) -> bytes:
        """What the server says until it closes the connection."""
        reader, writer = await self.connect()
        try:
            writer.write(request)
            return await asyncio.wait_for(reader.read(), 5)
        finally:
            writer.close()


@asynccontextmanager
async def served() -> AsyncIterator[Served]:
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    stop = asyncio.Event()
    task = asyncio.create_task(serve(echo, [Listener(bound)], stop))
    try:
        yield Served(bound.getsockname()[1], stop, task)
    finally:
        stop.set()
        await asyncio.wait_for(task, 10)


def run(scenario: Callable[[Served], Awaitable[None]]) -> None:
    async def main() -> None:
        async with served() as server_:
            await asyncio.wait_for(scenario(server_), 20)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


def request(target: str = "/", *headers: str, connection: str = "close") -> bytes:
    lines = [f"POST {target} HTTP/1.1", "Host: x", f"Connection: {connection}", *headers]
    return "\r\n".join([*lines, "", ""]).encode()


def test_a_request_is_answered_without_naming_the_server() -> None:
    async def scenario(server_: Served) -> None:
        answer = await server_.ask(request("/", "Content-Length: 3") + b"abc")
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert answer.endswith(b"3 bytes")
        assert b"uvicorn" not in answer

    run(scenario)


@pytest.mark.parametrize("cut", [0, 1])
def test_a_head_that_is_too_large_is_refused(cut: int) -> None:
    """At a stroke, or without ever coming to an end."""

    async def scenario(server_: Served) -> None:
        head = request("/", "X-Filler: " + "a" * HEAD_MAX)
        answer = await server_.ask(head[:-4] if cut else head)
        assert answer.startswith(b"HTTP/1.1 400 ")

    run(scenario)


def test_a_head_within_its_bounds_is_taken() -> None:
    async def scenario(server_: Served) -> None:
        answer = await server_.ask(request("/", "X-Filler: " + "a" * (HEAD_MAX - 200)))
        assert answer.startswith(b"HTTP/1.1 200 ")

    run(scenario)


def test_who_never_finishes_a_head_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_TIMEOUT_S", 0.2)

    async def scenario(server_: Served) -> None:
        for beginning in (b"", b"POST / HT", b"POST / HTTP/1.1\r\nHost: x\r\nX-Slow: "):
            started = asyncio.get_running_loop().time()
            with suppress(ConnectionResetError):
                assert await server_.ask(beginning) == b""
            assert 0.1 < asyncio.get_running_loop().time() - started < 3

    run(scenario)


def test_the_second_head_of_a_connection_has_its_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_TIMEOUT_S", 0.3)

    async def scenario(server_: Served) -> None:
        reader, writer = await server_.connect()
        writer.write(request("/", "Content-Length: 0", connection="keep-alive"))
        assert (await reader.readuntil(b"0 bytes")).startswith(b"HTTP/1.1 200 ")
        await asyncio.sleep(0.5)  # idle between requests is another thing: kept alive
        writer.write(request("/", "Content-Length: 1", connection="keep-alive") + b"a")
        assert (await reader.readuntil(b"1 bytes")).startswith(b"HTTP/1.1 200 ")
        writer.write(b"POST / HT")
        with suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 5) == b""
        writer.close()

    run(scenario)


def test_a_request_under_way_is_answered_when_the_server_stops() -> None:
    async def scenario(server_: Served) -> None:
        answer = asyncio.create_task(server_.ask(request("/slow", "Content-Length: 0")))
        await asyncio.sleep(0.1)
        server_.stop.set()
        assert (await answer).startswith(b"HTTP/1.1 200 ")
        await asyncio.wait_for(server_.task, 5)
        with pytest.raises(ConnectionRefusedError):
            await server_.connect()

    run(scenario)


def test_no_source_uses_up_the_connections_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "CONNECTIONS_PER_SOURCE", 3)

    async def scenario(server_: Served) -> None:
        held = [await server_.connect() for _ in range(3)]
        await asyncio.sleep(0.1)
        with suppress(ConnectionResetError):
            assert await server_.ask(request("/", "Content-Length: 0")) == b""
        for _, writer in held:
            writer.close()
        await asyncio.sleep(0.1)
        answer = await server_.ask(request("/", "Content-Length: 0"))
        assert answer.startswith(b"HTTP/1.1 200 ")

    run(scenario)


def test_signals_stay_their_callers() -> None:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    async def scenario(server_: Served) -> None:
        await server_.ask(request())
        for number, handler in handlers.items():
            if number is not signal.SIGINT:  # the runner's own
                assert signal.getsignal(number) is handler

    run(scenario)
    assert {number: signal.getsignal(number) for number in handlers} == handlers


def test_several_listeners_serve_and_stop_together() -> None:
    async def main() -> None:
        listeners = []
        for _ in range(2):
            bound = socket.socket()
            bound.bind(("127.0.0.1", 0))
            bound.listen()
            listeners.append(Listener(bound))
        ports = [listener.socket.getsockname()[1] for listener in listeners]
        stop = asyncio.Event()
        task = asyncio.create_task(serve(echo, listeners, stop))
        for port in ports:
            answer = await Served(port, stop, task).ask(request("/", "Content-Length: 0"))
            assert answer.endswith(b"0 bytes")
        stop.set()
        await asyncio.wait_for(task, 5)

    asyncio.run(main())


def certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate of localhost and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "cert.pem").write_bytes(made.public_bytes(pem))
    (folder / "key.pem").write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder / "cert.pem", folder / "key.pem"


def test_a_listener_with_a_context_speaks_tls(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    # The key is read already: the process cannot read it any more once it serves.
    key.unlink()

    async def main() -> None:
        bound = socket.socket()
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        port = bound.getsockname()[1]
        stop = asyncio.Event()
        task = asyncio.create_task(serve(echo, [Listener(bound, context)], stop))
        trusting = ssl.create_default_context(cafile=str(cert))
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", port, ssl=trusting, server_hostname="localhost"
        )
        writer.write(request("/", "Content-Length: 2") + b"ab")
        assert (await reader.read()).endswith(b"2 bytes")
        writer.close()
        stop.set()
        await asyncio.wait_for(task, 10)

    asyncio.run(main())

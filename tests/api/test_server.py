from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID
from prometheus_client import CollectorRegistry
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from egressd.api import protocol, server
from egressd.api.observe import Observe, RequestMetrics
from egressd.api.protocol import ABORT
from egressd.api.server import Listener, serve
from egressd.api.strict import HEAD_MAX

CHUNKED = "Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the size of the body. ``/slow`` takes its time, ``/from`` tells who asks;
    ``/much`` says more than buffers hold, and ``/abort`` has enough before that is taken.
    ``/hasty`` begins to answer before it looks at the body. There is no tunnel.
    """
    if scope["path"] == "/hasty":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hasty", "more_body": True})
    try:
        body = await Request(scope, receive).body()
    except ClientDisconnect:
        return
    text = f"{len(body)} bytes"
    match scope["path"]:
        case "/slow":
            await asyncio.sleep(0.3)
        case "/from":
            text = scope["client"][0]
        case "/much" | "/abort":
            text = " " * 50_000_000
    status = 405 if scope["method"] == "CONNECT" else 200
    await PlainTextResponse(text, status)(scope, receive, send)
    if scope["path"] == "/abort":
        scope[ABORT]()


class Tls(NamedTuple):
    """Both sides of TLS with localhost."""

    serving: ssl.SSLContext
    trusting: ssl.SSLContext


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    cert, key = certificate(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(cert, key)
    # The key is read already: the process cannot read it any more once it serves.
    key.unlink()
    return Tls(serving, ssl.create_default_context(cafile=str(cert)))


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


class Served:
    """A server on a loopback port of its own."""

    def __init__(self, port: int, stop: asyncio.Event, task: asyncio.Task[None]) -> None:
        self.port = port
        self.stop = stop
        self.task = task
        self.trusting: ssl.SSLContext | None = None
        """Of a server that speaks TLS: what its clients go by."""

    async def connect(
        self, source: str = "127.0.0.1", *, silent: bool = False
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection; a silent one does not even begin with TLS."""
        return await asyncio.open_connection(
            "127.0.0.1",
            self.port,
            ssl=None if silent else self.trusting,
            server_hostname="localhost" if self.trusting and not silent else None,
            local_addr=(source, 0),
        )

    async def ask(self, request: bytes, *, silent: bool = False) -> bytes:
        """What the server says until it closes the connection."""
        reader, writer = await self.connect(silent=silent)
        try:
            writer.write(request)
            return await asyncio.wait_for(reader.read(), 5)
        finally:
            writer.close()

    async def is_shut(self, *, silent: bool = False) -> bool:
        """Whether a connection comes to an end without an answer."""
        with suppress(ConnectionError):
            return not await self.ask(b"", silent=silent)
        return True


@asynccontextmanager
async def served(
    tls: ssl.SSLContext | None, address: str = "127.0.0.1", app: ASGIApp = echo
) -> AsyncIterator[Served]:
    bound = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    bound.bind((address, 0))
    bound.listen()
    stop = asyncio.Event()
    task = asyncio.create_task(serve(app, [Listener(bound, tls)], stop))
    try:
        yield Served(bound.getsockname()[1], stop, task)
    finally:
        stop.set()
        await asyncio.wait_for(task, 10)


def run(
    scenario: Callable[[Served], Awaitable[None]],
    tls: Tls | None = None,
    address: str = "127.0.0.1",
    app: ASGIApp = echo,
) -> None:
    async def main() -> None:
        async with served(tls and tls.serving, address, app) as server_:
            server_.trusting = tls and tls.trusting
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


def test_what_is_no_http_is_told_as_all_is() -> None:
    """curl sends a name in a URL as it is typed."""

    async def scenario(server_: Served) -> None:
        answer = await server_.ask("GET /delay?name=香港 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert b"content-type: application/json" in head
        assert "percent-encoded" in json.loads(body)["error"]

    run(scenario)


@pytest.mark.parametrize("size", [1, 1000])
@pytest.mark.parametrize("body", ["Content-Length: 5\r\n\r\nabcde", CHUNKED])
@pytest.mark.parametrize("last", ["Upgrade, close", "close"])
def test_a_request_for_another_protocol_is_one_like_any_other(
    size: int, body: str, last: str
) -> None:
    # Found by an audit: Java's client asks for HTTP/2 with its first request, and lost its body.
    def asking(connection: str) -> bytes:
        head = request("/", "Upgrade: h2c", "HTTP2-Settings: AAEAAEAA", connection=connection)
        return head[:-2] + body.encode()

    async def scenario(server_: Served) -> None:
        sent = asking("Upgrade, HTTP2-Settings") * 2 + asking(last)
        reader, writer = await server_.connect()
        for start in range(0, len(sent), size):
            writer.write(sent[start : start + size])
            await asyncio.sleep(0)
        answers = await asyncio.wait_for(reader.read(), 5)
        writer.close()
        assert answers.count(b"HTTP/1.1 200 OK\r\n") == 3
        assert answers.count(b"5 bytes") == 3

    run(scenario)


BAD_CHUNK = "Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n"


def test_a_body_that_is_none_is_refused_and_nothing_behind_it_is_answered() -> None:
    async def scenario(server_: Served) -> None:
        head = request("/", connection="keep-alive")[:-2]
        answers = await server_.ask(head + BAD_CHUNK.encode() + request())
        assert answers.startswith(b"HTTP/1.1 400 ")
        assert b"connection: close" in answers
        assert answers.count(b"\r\n\r\n") == 1

    run(scenario)


def test_what_has_begun_to_be_answered_is_not_answered_twice() -> None:
    async def scenario(server_: Served) -> None:
        reader, writer = await server_.connect()
        writer.write(request("/hasty", "Transfer-Encoding: chunked", connection="keep-alive"))
        await asyncio.wait_for(reader.readuntil(b"hasty"), 5)
        writer.write(b"5 \r\nhello\r\n0\r\n\r\n" + request())
        assert b"HTTP/1.1" not in await asyncio.wait_for(reader.read(), 5)
        writer.close()

    run(scenario)


def test_there_is_no_tunnel() -> None:
    async def scenario(server_: Served) -> None:
        head = request("/", connection="keep-alive").replace(b"POST", b"CONNECT")
        answers = await server_.ask(head + request("/", "Content-Length: 3") + b"abc")
        assert answers.startswith(b"HTTP/1.1 405 ")
        assert answers.count(b"HTTP/1.1 200 OK\r\n") == 1
        assert answers.endswith(b"3 bytes")

    run(scenario)


def test_a_head_within_its_bounds_is_taken() -> None:
    async def scenario(server_: Served) -> None:
        answer = await server_.ask(request("/", "X-Filler: " + "a" * (HEAD_MAX - 200)))
        assert answer.startswith(b"HTTP/1.1 200 ")

    run(scenario)


def test_who_never_finishes_a_head_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.2)

    async def scenario(server_: Served) -> None:
        for beginning in (b"", b"POST / HT", b"POST / HTTP/1.1\r\nHost: x\r\nX-Slow: "):
            started = asyncio.get_running_loop().time()
            with suppress(ConnectionResetError):
                assert await server_.ask(beginning) == b""
            assert 0.1 < asyncio.get_running_loop().time() - started < 3

    run(scenario)


def test_the_second_head_of_a_connection_has_its_time_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "HEAD_TIMEOUT_S", 0.3)

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


def test_a_listener_with_a_context_speaks_tls(tls: Tls) -> None:
    async def scenario(server_: Served) -> None:
        answer = await server_.ask(request("/", "Content-Length: 2") + b"ab")
        assert answer.endswith(b"2 bytes")

    run(scenario, tls)


@pytest.mark.parametrize(("limit", "other"), [("PER_SOURCE", 1), ("HELD_MAX", 2)])
def test_connections_count_before_their_handshake(
    tls: Tls, monkeypatch: pytest.MonkeyPatch, limit: str, other: int
) -> None:
    # Found by an audit: one source could shut the API by connections that said nothing.
    monkeypatch.setattr(server, f"CONNECTIONS_{limit}", 2)

    async def scenario(server_: Served) -> None:
        held = [await server_.connect(f"127.0.0.{other}", silent=True) for _ in range(2)]
        await asyncio.sleep(0.1)
        assert await server_.is_shut(silent=True)
        for _, writer in held:
            writer.close()
        await asyncio.sleep(0.1)
        answer = await server_.ask(request("/", "Content-Length: 0"))
        assert answer.startswith(b"HTTP/1.1 200 ")

    run(scenario, tls)


def test_who_never_finishes_a_handshake_is_dropped(
    tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "HANDSHAKE_TIMEOUT_S", 0.2)
    monkeypatch.setattr(server, "CONNECTIONS_PER_SOURCE", 1)

    async def scenario(server_: Served) -> None:
        started = asyncio.get_running_loop().time()
        assert await server_.is_shut(silent=True)
        assert asyncio.get_running_loop().time() - started > 0.1
        with suppress(ConnectionError):  # no TLS: an alert, or nothing at all
            assert b"HTTP" not in await server_.ask(request(), silent=True)
        answer = await server_.ask(request("/", "Content-Length: 0"))
        assert answer.startswith(b"HTTP/1.1 200 ")

    run(scenario, tls)


def test_who_takes_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose answer is complete, too: the server would wait for such a reader to take it."""
    monkeypatch.setattr(server, "STALL_TIMEOUT_S", 1)
    monkeypatch.setattr(server, "CONNECTIONS_PER_SOURCE", 1)

    async def scenario(server_: Served) -> None:
        with socket.create_connection(("127.0.0.1", server_.port)) as stalled:
            stalled.sendall(request("/much", "Content-Length: 0"))
            await asyncio.sleep(0.5)
            assert await server_.is_shut()
            answer = b""
            async with asyncio.timeout(10):
                while not answer:
                    await asyncio.sleep(0.2)
                    with suppress(ConnectionError):
                        answer = await server_.ask(request("/", "Content-Length: 0"))
            assert answer.startswith(b"HTTP/1.1 200 ")

    run(scenario)


def test_a_connection_is_aborted_with_all_that_was_not_sent() -> None:
    async def scenario(server_: Served) -> None:
        with socket.create_connection(("127.0.0.1", server_.port)) as stalled:
            stalled.sendall(request("/abort", "Content-Length: 0"))
            await asyncio.sleep(0.5)
            server_.stop.set()
            await asyncio.wait_for(server_.task, server.SHUTDOWN_S - 1)

    run(scenario)


def test_an_ipv4_client_is_one_at_an_ipv6_socket_too() -> None:
    async def scenario(server_: Served) -> None:
        answer = await server_.ask(request("/from", "Content-Length: 0"))
        assert answer.endswith(b"\r\n\r\n127.0.0.1")

    run(scenario, address="::ffff:127.0.0.1")


def test_p4_what_goes_on_when_the_server_stops_is_not_said_to_have_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "SHUTDOWN_S", 1)
    begun = asyncio.Event()

    async def endless(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await asyncio.Event().wait()

    async def scenario(server_: Served) -> None:
        asked = asyncio.create_task(server_.ask(request()))
        await begun.wait()
        server_.stop.set()
        with suppress(ConnectionError):
            assert await asked == b""
        await server_.task

    run(scenario, app=Observe(endless, RequestMetrics(CollectorRegistry())))

"""uvicorn, with its limits set.

Sockets are bound and keys are read by the caller, before it gives up its privileges; signals
are the caller's too. uvicorn bounds neither the size of a request's head nor the time it
takes to arrive (its keep-alive timer only runs between requests): `BoundedProtocol` does.
And it hears of a connection only when its TLS handshake is done: `_Server` accepts and counts
connections itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from asyncio import TimerHandle, Transport
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from ipaddress import IPv6Address
from typing import Any, Final, NamedTuple

import structlog
import uvicorn

# uvicorn loads this by name when it starts, which may be after the code became unreadable.
import uvicorn.lifespan.off
from httptools import HttpParserUpgrade, HttpRequestParser
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from egressd.api.wire.answers import failure
from egressd.model.source import source_of

log = structlog.get_logger()

HEAD_MAX: Final = 32 * 1024
"""Bytes of a request's line and headers together."""
HEAD_TIMEOUT_S: Final = 10.0
"""Seconds for a request's line and headers to arrive."""
CONNECTIONS_MAX: Final = 1024
"""Beyond it, requests are answered 503."""
CONNECTIONS_HELD_MAX: Final = 2048
"""Beyond it, connections are closed unheard. One in its TLS handshake takes 52 KiB."""
CONNECTIONS_PER_SOURCE: Final = 256
"""So that no single address can use up the connections of all."""
HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Seconds for a TLS handshake."""
STALL_TIMEOUT_S: Final = 30
"""Who takes nothing of what is sent for so many seconds is dropped."""
KEEP_ALIVE_S: Final = 30
_HEAD_TOO_LARGE: Final = f"the request's head must not be larger than {HEAD_MAX} bytes"
_NO_HTTP: Final = (
    "the request must be HTTP/1.1 (RFC 9112): in its target, what is not ASCII is percent-encoded"
)
SHUTDOWN_S: Final = 5
"""Seconds that requests under way have left when the server stops."""
_ACCEPT_RETRY_S: Final = 1.0

ABORT: Final = "egressd.abort"
"""Key of a request's scope: closes the connection at once, whatever was not sent yet."""


class Listener(NamedTuple):
    """A bound socket; with a context, it speaks TLS."""

    socket: socket.socket
    tls: ssl.SSLContext | None = None


async def serve(app: ASGIApp, listeners: Sequence[Listener], stop: asyncio.Event) -> None:
    """Serve `app` until `stop` is set; then let requests under way end, and close the sockets.

    Runs on the caller's event loop, which is best uvloop's.
    """
    sources: Counter[str] = Counter()
    servers = [
        (_Server(_config(app), listener.tls, sources), listener.socket) for listener in listeners
    ]
    async with asyncio.TaskGroup() as group:
        for server, bound in servers:
            group.create_task(server.serve(sockets=[bound]))
        await stop.wait()
        for server, _ in servers:
            server.should_exit = True


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=BoundedProtocol,
        interface="asgi3",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )


class _Server(uvicorn.Server):
    """A server that leaves signals to its caller, and accepts connections itself."""

    def __init__(
        self, config: uvicorn.Config, tls: ssl.SSLContext | None, sources: Counter[str]
    ) -> None:
        """`sources` counts the connections of all servers by where they come from."""
        super().__init__(config)
        self._tls = tls
        self._sources = sources
        self._accepting: list[asyncio.Task[None]] = []
        self._connections: set[asyncio.Task[None]] = set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections at `sockets`."""
        await super().startup([])
        for bound in sockets or ():
            bound.setblocking(False)
            bound.listen(self.config.backlog)
            self._accepting.append(asyncio.create_task(self._accept(bound)))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, let requests under way end, and close `sockets`."""
        await _cancel(self._accepting)
        await super().shutdown(sockets)
        await _cancel(self._connections)

    async def _accept(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(bound)
            except OSError as error:  # no descriptor is free, most likely
                log.warning("no connection can be accepted", reason=str(error))
                await asyncio.sleep(_ACCEPT_RETRY_S)
                continue
            client = _client(*address[:2])
            source = source_of(client[0])
            if (
                self._sources[source] >= CONNECTIONS_PER_SOURCE
                or self._sources.total() >= CONNECTIONS_HELD_MAX
            ):
                accepted.close()
                continue
            self._sources[source] += 1
            task = asyncio.create_task(self._hold(accepted, client, source))
            self._connections.add(task)
            task.add_done_callback(self._connections.discard)

    async def _hold(self, accepted: socket.socket, client: tuple[str, int], source: str) -> None:
        """Serve one connection until it is lost, and count it no more."""
        protocol = BoundedProtocol(
            self.config, self.server_state, self.lifespan.state, client=client
        )
        stall_ms = STALL_TIMEOUT_S * 1000
        try:
            # Also for a transport that is closed: it waits without end until all is taken.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stall_ms)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_TIMEOUT_S,
            )
            await protocol.lost.wait()
        except OSError:
            pass  # it is gone already, speaks no TLS, or not in time
        finally:
            self._sources[source] -= 1
            if not self._sources[source]:
                del self._sources[source]


async def _cancel(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _client(host: str, port: int) -> tuple[str, int]:
    """A client's address. IPv6 sockets have IPv4 clients as well, by names of their own."""
    mapped = IPv6Address(host).ipv4_mapped if ":" in host else None
    return (host if mapped is None else str(mapped), port)


class _Parser(HttpRequestParser):
    """A parser to which a request for another protocol is one like any other.

    A server may ignore Upgrade (RFC 9110, 7.8), and we speak no other protocol. llhttp stops after
    such a head, as if the other protocol began there: so the head is parsed once more, without
    its Upgrade, and the body after it.
    """

    def __init__(self, protocol: BoundedProtocol) -> None:
        super().__init__(protocol)
        self._protocol = protocol
        self.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does

    def should_upgrade(self) -> bool:
        """Whether a head is parsed once more. That of CONNECT is not: no body belongs to it."""
        return super().should_upgrade() and self.get_method() != b"CONNECT"

    def feed_data(self, data: Any) -> None:
        parser = self
        left = memoryview(data)
        while left:
            try:
                HttpRequestParser.feed_data(parser, left)
            except HttpParserUpgrade as pause:
                left = left[pause.args[0] :]
                if parser.should_upgrade():
                    # A new one: after a request that is the connection's last, this one is done.
                    parser = self._protocol.parser = _Parser(self._protocol)
                    HttpRequestParser.feed_data(parser, self._protocol.plain_head())
            else:
                return


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol with bounds on a request's head."""

    def __init__(self, *args: Any, client: tuple[str, int], **kwargs: Any) -> None:
        """`client` is where the connection comes from."""
        super().__init__(*args, **kwargs)
        self.parser = _Parser(self)
        self.lost = asyncio.Event()
        """Set while there is no connection, as after a TLS handshake that failed."""
        self.lost.set()
        self._from = client
        self._waiting_size = 0
        self._waiting: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self.lost.clear()
        self.client = self._from
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._head_arrived()
        super().connection_lost(exc)
        self.lost.set()

    def data_received(self, data: bytes) -> None:
        """Parse, and give up on a head that goes on and on (the parser would keep all of it)."""
        super().data_received(data)
        if self._waiting is not None:
            self._waiting_size += len(data)
            if self._waiting_size > HEAD_MAX and not self.transport.is_closing():
                self.send_400_response(_HEAD_TOO_LARGE)

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request as all is answered, and hang up."""
        text = msg if msg == _HEAD_TOO_LARGE else _NO_HTTP
        answer = failure(text, 400)
        headers = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
        head = b"HTTP/1.1 400 Bad Request\r\n%bconnection: close\r\n\r\n" % headers
        self.transport.write(head + answer.body)
        self.transport.close()

    def on_message_begin(self) -> None:
        """A request begins; on a connection that is kept alive it is not the first."""
        super().on_message_begin()
        self.scope[ABORT] = self.transport.abort  # type: ignore[typeddict-unknown-key]
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        """The head is there. One that came at a stroke has not been measured yet."""
        self._head_arrived()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > HEAD_MAX:
            raise ValueError(_HEAD_TOO_LARGE)
        super().on_headers_complete()

    def plain_head(self) -> bytes:
        """The head that was just parsed, without its Upgrade."""
        version = self.scope["http_version"].encode()
        lines = [b"%b %b HTTP/%b" % (self.scope["method"].encode(), self.url, version)]
        lines += [b"%b: %b" % header for header in self.headers if header[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    def _should_upgrade(self) -> bool:
        return True  # which has uvicorn pass over a head that is parsed once more

    def _wait_for_head(self) -> None:
        if self._waiting is None:
            self._waiting_size = 0
            self._waiting = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.abort)

    def _head_arrived(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

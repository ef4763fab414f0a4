"""uvicorn, with its limits set.

Sockets are bound and keys are read by the caller, before it gives up its privileges; signals
are the caller's too. uvicorn bounds neither the size of a request's head nor the time it
takes to arrive (its keep-alive timer only runs between requests): `BoundedProtocol` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from asyncio import TimerHandle, Transport
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

import uvicorn

# uvicorn loads this by name when it starts, which may be after the code became unreadable.
import uvicorn.lifespan.off
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from egressd.model.source import source_of

HEAD_MAX: Final = 32 * 1024
"""Bytes of a request's line and headers together."""
HEAD_TIMEOUT_S: Final = 10.0
"""Seconds for a request's line and headers to arrive."""
CONNECTIONS_MAX: Final = 1024
"""Beyond it, requests are answered 503."""
CONNECTIONS_PER_SOURCE: Final = 256
"""So that no single address can use up the connections of all."""
KEEP_ALIVE_S: Final = 30
_HEAD_TOO_LARGE: Final = f"The request's head is larger than {HEAD_MAX} bytes."
SHUTDOWN_S: Final = 5
"""Seconds that requests under way have left when the server stops."""


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
        (_Server(_config(app, listener.tls, sources)), listener.socket) for listener in listeners
    ]
    async with asyncio.TaskGroup() as group:
        for server, bound in servers:
            group.create_task(server.serve(sockets=[bound]))
        await stop.wait()
        for server, _ in servers:
            server.should_exit = True


def _config(app: ASGIApp, tls: ssl.SSLContext | None, sources: Counter[str]) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=cast(type[asyncio.Protocol], partial(BoundedProtocol, sources=sources)),
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
        ssl_context_factory=None if tls is None else lambda config, default: tls,
    )


class _Server(uvicorn.Server):
    """A server that leaves signals to its caller."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol with bounds on a request's head."""

    def __init__(self, *args: Any, sources: Counter[str], **kwargs: Any) -> None:
        """`sources` counts the connections of all listeners by where they come from."""
        super().__init__(*args, **kwargs)
        self._sources = sources
        self._source = ""
        self._waiting_size = 0
        self._waiting: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Wait for the first request, unless the source has enough connections."""
        super().connection_made(transport)
        self._source = source_of(self.client[0] if self.client else "")
        self._sources[self._source] += 1
        if self._sources[self._source] > CONNECTIONS_PER_SOURCE:
            transport.abort()
        else:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._head_arrived()
        self._sources[self._source] -= 1
        if not self._sources[self._source]:
            del self._sources[self._source]
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse, and give up on a head that goes on and on (the parser would keep all of it)."""
        super().data_received(data)
        if self._waiting is not None:
            self._waiting_size += len(data)
            if self._waiting_size > HEAD_MAX and not self.transport.is_closing():
                self.send_400_response(_HEAD_TOO_LARGE)

    def on_message_begin(self) -> None:
        """A request begins; on a connection that is kept alive it is not the first."""
        super().on_message_begin()
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        """The head is there. One that came at a stroke has not been measured yet."""
        self._head_arrived()
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > HEAD_MAX:
            raise ValueError(_HEAD_TOO_LARGE)
        super().on_headers_complete()

    def _wait_for_head(self) -> None:
        if self._waiting is None:
            self._waiting_size = 0
            self._waiting = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.abort)

    def _head_arrived(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

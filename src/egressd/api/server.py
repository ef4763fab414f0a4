"""uvicorn, with its limits set.

Sockets are bound and keys are read by the caller, before it gives up its privileges; signals
are the caller's too. uvicorn hears of a connection only when its TLS handshake is done: `_Server`
accepts and counts connections itself. `egressd.api.protocol` is what it speaks.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from ipaddress import IPv6Address
from typing import Final, NamedTuple

import structlog
import uvicorn

# uvicorn loads this by name when it starts, which may be after the code became unreadable.
import uvicorn.lifespan.off
from starlette.types import ASGIApp

from egressd.api.protocol import BoundedProtocol
from egressd.model.source import source_of

log = structlog.get_logger()

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
SHUTDOWN_S: Final = 5
"""Seconds that requests under way have left when the server stops."""
_ACCEPT_RETRY_S: Final = 1.0


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

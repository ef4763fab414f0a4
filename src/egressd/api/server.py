"""uvicorn, with its limits set.

Sockets are bound and keys are read by the caller, before it gives up its privileges; signals
are the caller's too. uvicorn hears of a connection only when its TLS handshake is done: `_Server`
accepts connections itself, as far as there is room for them (`egressd.api.bounds`).
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from ipaddress import IPv6Address
from typing import Final, NamedTuple

import structlog
import uvicorn

# uvicorn loads this by name when it starts, which may be after the code became unreadable.
import uvicorn.lifespan.off
from starlette.types import ASGIApp

from egressd.api.bounds import CallBounds, HeldConnection
from egressd.api.protocol import STALL_TIMEOUT_S, BoundedProtocol, PacedReader
from egressd.model.source import Source, local_user, source_of

log = structlog.get_logger()

HANDSHAKE_TIMEOUT_S: Final = 10.0
"""Seconds for a TLS handshake."""
GOODBYE_TIMEOUT_S: Final = 5.0
"""Seconds for a client to take its leave of TLS."""
KEEP_ALIVE_S: Final = 30
SHUTDOWN_S: Final = 5
"""Seconds that requests under way have left when the server stops."""
_ACCEPT_RETRY_S: Final = 1.0
_LOOK_S: Final = 0.5
"""Seconds between looks for connections whose client has had its time."""
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid (unix(7), SO_PEERCRED)


class ApiListener(NamedTuple):
    """A bound socket; with a context, it speaks TLS."""

    socket: socket.socket
    tls: ssl.SSLContext | None = None
    is_shut: bool = False
    """True if connections are closed at once. Another process may hold the socket, too: without an
    accept they would wait forever.
    """


async def serve(
    app: ASGIApp,
    listeners: Sequence[ApiListener],
    stop: asyncio.Event,
    bounds: CallBounds | None = None,
) -> None:
    """Serve `app` until `stop` is set; then let requests under way end, and close the sockets.

    Runs on the caller's event loop, which is best uvloop's. `bounds` are those of all listeners.
    """
    server = _Server(_config(app), listeners, bounds or CallBounds())
    async with asyncio.TaskGroup() as group:
        group.create_task(server.serve([listener.socket for listener in listeners]))
        await stop.wait()
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
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=SHUTDOWN_S,
    )


class _Server(uvicorn.Server):
    """A server that leaves signals to its caller, and accepts connections itself.

    Of `uvicorn.Server` it relies on what that calls in `serve`: `capture_signals`, `startup` and
    `shutdown`.
    """

    def __init__(
        self, config: uvicorn.Config, listeners: Sequence[ApiListener], bounds: CallBounds
    ) -> None:
        super().__init__(config)
        self._listeners = listeners
        self._bounds = bounds
        self._accepting: list[asyncio.Task[None]] = []
        self._connections: set[asyncio.Task[None]] = set()
        self._protocols: set[BoundedProtocol] = set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup([])
        for listener in self._listeners:
            listener.socket.setblocking(False)
            listener.socket.listen(self.config.backlog)
            self._accepting.append(asyncio.create_task(self._accept(listener)))
        self._accepting.append(asyncio.create_task(self._end_late_ones()))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more, let requests under way end, and close `sockets`."""
        await _cancel(self._accepting)
        await super().shutdown(sockets)
        await _cancel(self._connections)

    async def _accept(self, listener: ApiListener) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listener.socket)
            except OSError as error:  # no descriptor is free, most likely
                log.warning("cannot accept connections", reason=str(error))
                await asyncio.sleep(_ACCEPT_RETRY_S)
                continue
            if listener.is_shut:
                accepted.close()
                continue
            client, source = _origin(accepted, address)
            held = self._bounds.admit(source, lambda: None)
            if held is None:
                accepted.close()
                continue
            task = asyncio.create_task(self._hold(accepted, listener.tls, client, held))
            held.end = task.cancel
            self._connections.add(task)
            task.add_done_callback(partial(self._let_go, accepted, held))

    async def _hold(
        self,
        accepted: socket.socket,
        tls: ssl.SSLContext | None,
        client: tuple[str, int] | None,
        held: HeldConnection,
    ) -> None:
        """Serve one connection until it is lost."""
        protocol = BoundedProtocol(
            self.config,
            self.server_state,
            self.lifespan.state,
            bounds=self._bounds,
            held=held,
            client=client,
        )
        self._protocols.add(protocol)
        stall_ms = STALL_TIMEOUT_S * 1000
        try:
            if client is not None:
                # Also for a transport that is closed: it waits without end until all is taken.
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, stall_ms)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: PacedReader(protocol),
                accepted,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=None if tls is None else GOODBYE_TIMEOUT_S,
            )
            await protocol.lost.wait()
        except OSError:
            pass  # it is gone already, speaks no TLS, or not in time
        finally:
            self._protocols.discard(protocol)

    def _let_go(
        self, accepted: socket.socket, held: HeldConnection, task: asyncio.Task[None]
    ) -> None:
        self._connections.discard(task)
        self._bounds.release(held)
        accepted.close()  # a task that was cancelled before it began does not

    async def _end_late_ones(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await asyncio.sleep(_LOOK_S)
            now = clock()
            for protocol in list(self._protocols):
                protocol.end_if_late(now)


async def _cancel(tasks: Collection[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _origin(
    accepted: socket.socket, address: tuple[str, int]
) -> tuple[tuple[str, int] | None, Source]:
    """A client's address, None at a Unix socket, and whose the connection is."""
    if accepted.family == socket.AF_UNIX:
        raw = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        return None, local_user(_CREDENTIALS.unpack(raw)[1])
    host, port = address[:2]
    # IPv6 sockets have IPv4 clients as well, by names of their own.
    mapped = IPv6Address(host).ipv4_mapped if ":" in host else None
    client = (host if mapped is None else str(mapped), port)
    return client, source_of(client[0])

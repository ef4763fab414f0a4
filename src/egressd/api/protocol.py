"""HTTP/1.1 for one connection: uvicorn's h11 protocol, which tells what it waits for.

Of uvicorn this relies on `H11Protocol`: `handle_events` is called for all that arrives,
`on_response_complete` after each answer, `shutdown` when the server stops, `send_400_response` for
what h11 refuses; `app` is what requests are handed to, `cycle` is the last of them, and
`flow.write_paused` tells that an answer waits for its client. uvicorn itself ends connections that
are idle between requests.
"""

from __future__ import annotations

import asyncio
from asyncio import BufferedProtocol, Transport
from collections.abc import Callable
from math import inf
from typing import Any, Final, Protocol

import h11
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from egressd.api.bounds import CallBounds, HeldConnection, Stage
from egressd.api.strict import StrictConnection
from egressd.api.wire.answers import failure

HEAD_TIMEOUT_S: Final = 10.0
"""Seconds for a request's line and headers to arrive."""
LEFT_OVER_S: Final = 10.0
"""Seconds for the rest of a body to arrive whose request is answered."""
FIRST_S: Final = 1.0
"""Seconds for the first request of a connection that was accepted just before the server stops."""
PARTING_S: Final = 5.0
"""Seconds for a client to end a connection that the device has ended in the midst of a request."""
STALL_TIMEOUT_S: Final = 30
"""Seconds after which a client is dropped that takes nothing of what is sent, or less than
`RATE_MIN`."""
RATE_MIN: Final = 4096
"""Bytes a second that a client takes of an answer at the least."""
READ_MAX: Final = 16 * 1024
"""Bytes that are read of a connection before others have their turn. Of chunks of one byte these
take 20 ms; a transport of uvloop's would read 250 KiB."""

_BUFFER: Final = bytearray(READ_MAX)
"""The buffer that all connections read into, one after the other."""

CONNECTION: Final = "egressd.connection"
"""Key of a request's scope: its `HttpConnection`. Absent where a test calls the application."""


class HttpConnection(Protocol):
    """The connection of a request."""

    def abort(self) -> None:
        """Close it at once, whatever was not sent yet."""
        ...

    def vouch(self) -> None:
        """Note that a valid token or session came by it."""
        ...


def vouch_for(scope: Scope) -> None:
    """Note that a request bears a valid token or session: its address is known from now on."""
    connection: HttpConnection | None = scope.get(CONNECTION)
    if connection is not None:
        connection.vouch()


class BoundedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol, strict and bounded."""

    conn: StrictConnection

    def __init__(
        self,
        *args: Any,
        bounds: CallBounds,
        held: HeldConnection,
        client: tuple[str, int] | None,
        **kwargs: Any,
    ) -> None:
        """`client` is where the connection comes from; None for a Unix socket's."""
        super().__init__(*args, **kwargs)
        self.conn = StrictConnection()
        self.lost = asyncio.Event()
        """Set while there is no connection, as after a TLS handshake that failed."""
        self.lost.set()
        self._bounds = bounds
        self._held = held
        self._from = client
        self._application = self.app
        self.app = self._serve
        self._awaited = "head"
        self._deadline = inf
        """Until when what is awaited has to be there, in the loop's time."""
        self._owing_until = inf
        """Until when the client has to take what waits to be sent."""
        self._is_last = False
        """True if the next request is answered as the last one."""

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(_Parting(transport, self._is_heard_out))  # type: ignore[arg-type]
        self.lost.clear()
        self.client = self._from
        self._held.end = transport.abort
        self._deadline = self.loop.time() + HEAD_TIMEOUT_S

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        super().connection_lost(exc)
        self.lost.set()

    def shutdown(self) -> None:
        """End it after the request under way. A new one's first request may be under way, too."""
        if self.cycle is None and not self.transport.is_closing():
            self._is_last = True
            self.loop.call_later(FIRST_S, self._end_if_silent)
        else:
            super().shutdown()

    def abort(self) -> None:
        """Close it at once, whatever was not sent yet."""
        self.transport.abort()

    def vouch(self) -> None:
        """Note that a valid token or session came by it."""
        self._bounds.vouch(self._held)

    def end_if_late(self, now: float) -> None:
        """End a connection whose client has had its time; called every now and then."""
        if self.lost.is_set():
            return
        backlog = self.transport.get_write_buffer_size()
        if not backlog:
            self._owing_until = inf
        elif self._owing_until == inf:
            self._owing_until = now + STALL_TIMEOUT_S + backlog / RATE_MIN
        if now > min(self._deadline, self._owing_until):
            self.transport.abort()
        elif self._held.stage is Stage.TAKING:
            self._look()  # nothing tells that all is taken

    # --- What happens to it. ------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Take the bytes that have arrived, unless the connection is closing."""
        if not self.transport.is_closing():
            super().data_received(data)

    def handle_events(self) -> None:
        """Take requests as far as they have arrived."""
        super().handle_events()
        if self._is_last and self.cycle is not None:
            self.cycle.keep_alive = False
        self._look()

    def on_response_complete(self) -> None:
        """Wait for what comes after an answer."""
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        """More waits to be sent than the client takes."""
        super().pause_writing()
        self._look()

    def resume_writing(self) -> None:
        """The client has taken what waited."""
        super().resume_writing()
        self._look()

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request as all is answered, and hang up."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):  # else an answer has begun
            answer = failure(self.conn.fault, 400)
            headers = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
            head = b"HTTP/1.1 400 Bad Request\r\n%bconnection: close\r\n\r\n" % headers
            self.transport.write(head + answer.body)
        if self.cycle is not None:  # the request that a bad body belongs to, where there is one
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()
        self._look()

    def _end_if_silent(self) -> None:
        if self.cycle is None:
            self.transport.close()

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope[CONNECTION] = self
        await self._application(scope, receive, send)

    def _is_heard_out(self) -> bool:
        return self.conn.their_state in (h11.DONE, h11.MUST_CLOSE, h11.CLOSED) or (
            self.conn.is_between_requests
        )

    def _look(self) -> None:
        """See what the connection waits for, and until when."""
        theirs = self.conn.their_state
        backlog = self.transport.get_write_buffer_size()
        is_closing = self.transport.is_closing()
        if is_closing:
            stage = Stage.TAKING
        elif theirs is h11.SEND_BODY:
            stage = Stage.SENDING
        elif self.flow.write_paused or (backlog and theirs is h11.IDLE):
            stage = Stage.TAKING
        elif theirs is h11.IDLE:
            stage = Stage.SILENT
        else:
            stage = Stage.WORKING
        self._bounds.enter(self._held, stage)
        if is_closing and not backlog:
            self._await("end", PARTING_S)
        elif is_closing:
            self._await("", inf)
        elif theirs is h11.IDLE and not self.conn.is_between_requests:
            self._await("head", HEAD_TIMEOUT_S)
        elif theirs is h11.SEND_BODY and self.conn.our_state is h11.DONE:
            self._await("rest", LEFT_OVER_S)
        elif self.cycle is not None:  # else the first head is awaited since the beginning
            self._await("", inf)

    def _await(self, awaited: str, within_s: float) -> None:
        if awaited != self._awaited:
            self._awaited = awaited
            self._deadline = self.loop.time() + within_s


class _Parting:
    """A transport whose `close` lets a client that is still sending read what it was answered.

    A socket that is closed with bytes unread resets the connection, and the client's side may
    throw the answer away then (RFC 9112, 9.6). So only the own direction ends, where TLS does not
    stand in the way, until the client has ended the other one. All else is the transport's own.
    """

    def __init__(self, transport: Transport, is_heard_out: Callable[[], bool]) -> None:
        self._transport = transport
        self._is_heard_out = is_heard_out
        self._is_parting = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        """Return True once the connection is closing."""
        return self._is_parting or self._transport.is_closing()

    def close(self) -> None:
        """Send what waits to be sent, and then the end."""
        if self.is_closing():
            return
        if self._is_heard_out() or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._is_parting = True
            self._transport.write_eof()
            self._transport.resume_reading()


class PacedReader(BufferedProtocol):
    """Reads for a protocol, `READ_MAX` bytes at a time."""

    def __init__(self, inner: BoundedProtocol) -> None:
        self._inner = inner

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Begin."""
        self._inner.connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._inner.connection_lost(exc)

    def pause_writing(self) -> None:
        """Write no more for a while."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Write again."""
        self._inner.resume_writing()

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return what is to be read into."""
        return _BUFFER

    def buffer_updated(self, nbytes: int) -> None:
        """Hand on what was read."""
        self._inner.data_received(bytes(_BUFFER[:nbytes]))

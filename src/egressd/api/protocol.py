"""HTTP/1.1 for one connection: uvicorn's h11 protocol, with bounds on a request's head.

uvicorn's keep-alive timer runs only between requests: `BoundedProtocol` bounds the time of a head,
`StrictConnection` its size. Of uvicorn it relies on `H11Protocol`: `handle_events` is called for
all that arrives and after each answer, and `send_400_response` for what h11 refuses.
"""

from __future__ import annotations

import asyncio
from asyncio import TimerHandle, Transport
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from egressd.api.strict import StrictConnection
from egressd.api.wire.answers import failure

HEAD_TIMEOUT_S: Final = 10.0
"""Seconds for a request's line and headers to arrive."""

ABORT: Final = "egressd.abort"
"""Key of a request's scope: closes the connection at once, whatever was not sent yet."""


class BoundedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1 protocol, strict and bounded."""

    conn: StrictConnection

    def __init__(self, *args: Any, client: tuple[str, int], **kwargs: Any) -> None:
        """`client` is where the connection comes from."""
        super().__init__(*args, **kwargs)
        self.conn = StrictConnection()
        self.lost = asyncio.Event()
        """Set while there is no connection, as after a TLS handshake that failed."""
        self.lost.set()
        self._from = client
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

    def handle_events(self) -> None:
        """Take requests as far as they have arrived."""
        super().handle_events()
        if self.scope is not None:  # the request that was just taken, which nobody works on yet
            self.scope[ABORT] = self.transport.abort  # type: ignore[typeddict-unknown-key]
        if self.conn.their_state is not h11.IDLE:
            self._head_arrived()
        elif not self.conn.is_between_requests:
            self._wait_for_head()

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

    def _wait_for_head(self) -> None:
        if self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_TIMEOUT_S, self.transport.abort)

    def _head_arrived(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

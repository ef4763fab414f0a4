"""Server-sent events (WHATWG HTML, 9.2): a stream of what happens on the device."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any, Final

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from egressd.api.wire.answers import failure
from egressd.model.messages import Event

EventSource = Callable[[], AsyncIterator[Event]]
"""Opens a stream of all events from now on. It ends when the device stops serving."""

KEEP_ALIVE_S: Final = 15.0
"""A comment is sent after so much silence, so that a dead connection is noticed."""
STREAMS_MAX: Final = 32


class Broadcast:
    """Hands the events out to at most `STREAMS_MAX` listeners."""

    def __init__(self, source: EventSource) -> None:
        self._source = source
        self._streams = 0

    def response(self) -> Response:
        """A stream, or 503 when there are too many."""
        if self._streams >= STREAMS_MAX:
            return failure("too many event streams are open", 503)
        return _Stream(self)

    async def send_all(self, receive: Receive, send: Send) -> None:
        """Send events as they come until either side has enough."""
        self._streams += 1
        events = self._source()
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await _relay(events, gone, send)
        finally:
            self._streams -= 1
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone


class _Stream(Response):
    media_type = "text/event-stream"

    def __init__(self, broadcast: Broadcast) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._broadcast = broadcast

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        await self._broadcast.send_all(receive, send)
        await send(_chunk(b"", more=False))


async def _relay(events: AsyncIterator[Event], gone: asyncio.Future[None], send: Send) -> None:
    await send(_chunk(b": listening\n\n"))
    upcoming: asyncio.Future[Event] | None = None
    try:
        while True:
            upcoming = upcoming or asyncio.ensure_future(anext(events))
            watched: set[asyncio.Future[Any]] = {upcoming, gone}
            await asyncio.wait(watched, timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                return
            if not upcoming.done():
                await send(_chunk(b": still here\n\n"))
                continue
            try:
                event = upcoming.result()
            except StopAsyncIteration:
                return
            upcoming = None
            await send(_chunk(_encoded(event)))
    finally:
        if upcoming is not None:
            upcoming.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await upcoming
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


def _encoded(event: Event) -> bytes:
    told = {"topic": event.topic, "subject": event.subject, "text": event.text}
    return b"data: " + msgspec.json.encode(told) + b"\n\n"


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _chunk(body: bytes, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}

"""Server-sent events (WHATWG HTML, 9.2): a stream of what happens on the device."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from egressd.api.protocol import CONNECTION
from egressd.api.refusals import refusal
from egressd.model.faults import fault
from egressd.model.messages import Event
from egressd.model.wording import Sentence, as_text, coded_values

EventSource = Callable[[], AsyncIterator[Event]]
"""Opens a stream of all events from now on. It ends when the device stops serving."""

KEEP_ALIVE_S: Final = 15.0
"""A comment is sent after so much silence, so that a dead connection is noticed."""
SEND_TIMEOUT_S: Final = 10.0
"""A reader that takes so long over one message is not waited for, and its connection ends."""
STREAMS_MAX: Final = 64
STREAMS_PER_CALLER: Final = 8
"""Streams of one session or token at one address: one operator's pages leave room for others'."""
FRESH_S: Final = 1.0


class PastEvent(NamedTuple):
    """An event, and the Unix time at which it was published."""

    at: float
    event: Event


LatestEvents = Callable[[int], Sequence[PastEvent]]
"""Returns at most so many of the latest events, the last one first."""


class Pulse(NamedTuple):
    """A JSON document that a stream brings at once and then again and again."""

    every_s: float
    read: Callable[[], Awaitable[bytes]]


class Snapshots:
    """One document for all streams that ask within a second."""

    def __init__(self, make: Callable[[], Awaitable[object]]) -> None:
        self._make = make
        self._turn = asyncio.Lock()
        self._last = b""
        self._stale_at = 0.0

    async def read(self) -> bytes:
        """The document as JSON, at most a second old."""
        clock = asyncio.get_running_loop().time
        async with self._turn:
            if clock() >= self._stale_at:
                self._last = msgspec.json.encode(await self._make(), enc_hook=as_text)
                self._stale_at = clock() + FRESH_S
            return self._last


class EventListener(NamedTuple):
    """The receiver of a stream."""

    caller: str = ""
    """The same for all streams of one session, or of the token at one address."""
    is_live: Callable[[], bool] = lambda: True
    """Returns True while the receiver may still listen; checked repeatedly."""
    over: Callable[[], Coroutine[Any, Any, Sentence]] | None = None
    """Waits until the receiver may not listen any more, and returns the reason, which the stream
    ends with."""


class Broadcast:
    """Hands the events out to at most `STREAMS_MAX` listeners."""

    def __init__(self, source: EventSource) -> None:
        self._source = source
        self._streams: Counter[str] = Counter()
        """By caller."""

    def response(
        self, scope: Scope, listener: EventListener, pulse: Pulse | None = None
    ) -> Response:
        """A stream, or 503 when there are too many. It ends once it is not live any more."""
        if self._streams[listener.caller] >= STREAMS_PER_CALLER:
            full = fault("", "too-many-streams-of-caller", most=STREAMS_PER_CALLER)
        elif self._streams.total() >= STREAMS_MAX:
            full = fault("", "too-many-streams")
        else:
            return _Stream(self, listener, pulse)
        return refusal(scope, str(full), 503, [full])

    async def send_all(
        self, receive: Receive, send: Send, listener: EventListener, pulse: Pulse | None
    ) -> None:
        """Send events as they come until either side has enough."""
        self._streams[listener.caller] += 1
        events = self._source()
        gone = asyncio.ensure_future(_disconnected(receive))
        try:
            await _relay(events, gone, send, listener, pulse)
        finally:
            self._streams[listener.caller] -= 1
            self._streams += Counter()  # keeps no callers that have none
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone


class _Stalled(Exception):
    """The reader of a stream takes nothing of it."""


class _Stream(Response):
    media_type = "text/event-stream"

    def __init__(self, broadcast: Broadcast, listener: EventListener, pulse: Pulse | None) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._broadcast = broadcast
        self._listener = listener
        self._pulse = pulse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_in_time(message: Message) -> None:
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await send(message)
            except TimeoutError:
                raise _Stalled from None

        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        try:
            await send_in_time(start)
            await self._broadcast.send_all(receive, send_in_time, self._listener, self._pulse)
            await send_in_time(_chunk(b"", more=False))
        except _Stalled:
            # A mere close would wait until the reader has taken what is on its way.
            scope[CONNECTION].abort()
            await _disconnected(receive)


async def _relay(
    events: AsyncIterator[Event],
    gone: asyncio.Future[None],
    send: Send,
    listener: EventListener,
    pulse: Pulse | None,
) -> None:
    # Listen first: what happens while the first document is made must not be missed.
    upcoming: asyncio.Future[Event] | None = asyncio.ensure_future(anext(events))
    over = None if listener.over is None else asyncio.ensure_future(listener.over())
    clock = asyncio.get_running_loop().time
    next_beat = clock()
    try:
        await send(_chunk(b": listening\n\n"))
        while True:
            if pulse is not None and clock() >= next_beat:
                await send(_chunk(b"event: overview\ndata: " + await pulse.read() + b"\n\n"))
                next_beat = clock() + pulse.every_s
            upcoming = upcoming or asyncio.ensure_future(anext(events))
            watched: set[asyncio.Future[Any]] = {upcoming, gone}
            if over is not None:
                watched.add(over)
            patience = KEEP_ALIVE_S if pulse is None else max(0.0, next_beat - clock())
            await asyncio.wait(watched, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
            if gone.done() or await _has_ended(listener, over, send):
                return
            if not upcoming.done():
                if pulse is None:
                    await send(_chunk(b": still here\n\n"))
                continue
            try:
                event = upcoming.result()
            except StopAsyncIteration:
                return
            upcoming = None
            await send(_chunk(_encoded(event)))
    finally:
        for awaited in (upcoming, over):
            if awaited is not None:
                awaited.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration):
                    await awaited
        close = getattr(events, "aclose", None)
        if close is not None:
            await close()


def _encoded(event: Event) -> bytes:
    told = {
        "topic": event.topic,
        "subject": event.subject,
        "text": event.text,
        "code": event.code,
        "values": coded_values(event.values),
    }
    return b"data: " + msgspec.json.encode(told) + b"\n\n"


async def _has_ended(
    listener: EventListener, over: asyncio.Future[Sentence] | None, send: Send
) -> bool:
    """Return True if the receiver may not listen any more, and send it the reason if there is one
    for it.
    """
    is_over = over is not None and over.done()
    if not is_over and listener.is_live():
        return False
    if listener.over is not None:  # which does not wait any more
        await send(_chunk(b"event: end\n" + _encoded_end(await listener.over())))
    return True


def _encoded_end(end: Sentence) -> bytes:
    told = {"text": end, "code": end.code, "values": coded_values(end.values)}
    return b"data: " + msgspec.json.encode(told, enc_hook=as_text) + b"\n\n"


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _chunk(body: bytes, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}

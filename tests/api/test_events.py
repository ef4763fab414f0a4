from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from starlette.types import Message

from egressd.api import events as events_module
from egressd.api.events import STREAMS_MAX, STREAMS_PER_CALLER, Broadcast
from egressd.api.protocol import CONNECTION
from egressd.model.messages import Event


class Listener:
    """The receiving end of one stream."""

    def __init__(self, broadcast: Broadcast, caller: str = "") -> None:
        self.status = 0
        self.caller = caller
        self.chunks: asyncio.Queue[Message] = asyncio.Queue()
        self.gone = asyncio.Event()
        self.takes = asyncio.Event()
        self.takes.set()
        self.task = asyncio.create_task(self._listen(broadcast))

    async def _listen(self, broadcast: Broadcast) -> None:
        scope = {"type": "http", CONNECTION: self}
        response = broadcast.response(scope, events_module.EventListener(self.caller))
        await response(scope, self._receive, self._send)

    def abort(self) -> None:
        """Abort the stream as the server does."""
        self.gone.set()

    async def _receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = dict(message["headers"])
        else:
            await self.takes.wait()
            await self.chunks.put(message)

    async def next(self) -> bytes:
        chunk: bytes = (await asyncio.wait_for(self.chunks.get(), 2))["body"]
        return chunk


class Source:
    """Events that a test makes."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self.closed = 0

    async def __call__(self) -> AsyncIterator[Event]:
        try:
            while (event := await self.queue.get()) is not None:
                yield event
        finally:
            self.closed += 1


async def test_events_are_relayed_until_the_source_ends() -> None:
    source = Source()
    listener = Listener(Broadcast(source))
    assert await listener.next() == b": listening\n\n"
    assert listener.headers[b"content-type"].startswith(b"text/event-stream")
    assert b"content-length" not in listener.headers
    values = {"ip": "10.9.0.2"}
    await source.queue.put(
        Event(topic="line", subject="l2tp_1", text="two\nlines", code="online", values=values)
    )
    assert await listener.next() == (
        b'data: {"topic":"line","subject":"l2tp_1","text":"two\\nlines",'
        b'"code":"online","values":{"ip":"10.9.0.2"}}\n\n'
    )
    await source.queue.put(None)
    assert await listener.next() == b""
    await listener.task
    assert source.closed == 1


async def test_a_listener_that_disconnects_closes_its_source() -> None:
    source = Source()
    listener = Listener(Broadcast(source))
    await listener.next()
    listener.gone.set()
    await listener.task
    assert source.closed == 1


async def test_a_stream_that_is_cancelled_closes_its_source() -> None:
    source = Source()
    listener = Listener(Broadcast(source))
    await listener.next()
    listener.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await listener.task
    assert source.closed == 1


async def test_silence_is_interrupted_by_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events_module, "KEEP_ALIVE_S", 0.01)

    source = Source()
    listener = Listener(Broadcast(source))
    await listener.next()
    assert await listener.next() == b": still here\n\n"
    assert await listener.next() == b": still here\n\n"
    await source.queue.put(Event(topic="after"))
    while (chunk := await listener.next()).startswith(b":"):
        pass
    assert b"after" in chunk
    listener.gone.set()
    await listener.task


async def test_a_reader_that_stalls_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    # Found by an audit: such streams outlived their sessions, and no other client got one.
    monkeypatch.setattr(events_module, "SEND_TIMEOUT_S", 0.05)
    monkeypatch.setattr(events_module, "STREAMS_MAX", 1)

    source = Source()
    broadcast = Broadcast(source)
    listener = Listener(broadcast)
    await listener.next()
    listener.takes.clear()
    await source.queue.put(Event(topic="line"))
    await listener.task
    assert listener.gone.is_set()
    assert source.closed == 1
    again = Listener(broadcast)
    assert await again.next() == b": listening\n\n"
    again.gone.set()
    await again.task


async def test_the_number_of_streams_is_limited_and_ended_ones_are_released() -> None:
    broadcast = Broadcast(Source())
    listeners = [Listener(broadcast, str(n // 8)) for n in range(STREAMS_MAX)]
    for listener in listeners:
        await listener.next()
    refused = Listener(broadcast, "another")
    await refused.task
    assert refused.status == 503
    for listener in listeners:
        listener.gone.set()
        await listener.task
    again = Listener(broadcast)
    assert await again.next() == b": listening\n\n"
    again.gone.set()
    await again.task


async def test_one_caller_cannot_take_all_streams() -> None:
    broadcast = Broadcast(Source())
    listeners = [Listener(broadcast, "session 1") for _ in range(STREAMS_PER_CALLER)]
    for listener in listeners:
        await listener.next()
    refused = Listener(broadcast, "session 1")
    await refused.task
    assert refused.status == 503
    other = Listener(broadcast, "session 2")
    assert await other.next() == b": listening\n\n"
    for listener in (*listeners, other):
        listener.gone.set()
        await listener.task

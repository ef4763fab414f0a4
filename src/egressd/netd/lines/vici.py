"""A connection to charon by VICI, strongSwan's control protocol, for the event loop.

The ``vici`` package has the encoding, and sessions that block; this module uses its encoding on a
stream of asyncio. See ``src/libcharon/plugins/vici/README.md`` of strongSwan.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from vici.exception import DeserializationException  # type: ignore[import-untyped]
from vici.protocol import Message, Packet  # type: ignore[import-untyped]

from egressd.model.wording import say

_GONE: Final = say("charon-gone")
_LENGTH: Final = struct.Struct("!I")
_SEGMENT_MAX: Final = 512 * 1024
"""Bytes of a packet at most (``vici_socket.c``)."""
_ANSWER_S: Final = 5.0
"""Seconds that charon may take to answer. It answers at once, or within the second it is given."""

Values = dict[str, Any]


class CharonRefusal(Exception):
    """charon refused a command; the text is charon's."""


class Connection:
    """One connection: commands in turn, and events at any time.

    ``hear(event, values)`` gets the registered events. ``closed()`` is called if charon has gone or
    does not answer, but not after `close`. After a missing answer no more commands are sent.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        hear: Callable[[str, Values], None],
    ) -> None:
        self._writer = writer
        self._hear = hear
        self._closed: Callable[[], None] = _nothing
        self._turn = asyncio.Lock()
        self._awaited: deque[asyncio.Future[tuple[int, Values]]] = deque()
        """A future for each command without an answer, which is cancelled if the caller gave up."""
        self._streamed: tuple[str, list[Values]] | None = None
        self._collecting = asyncio.Lock()
        self._reading = asyncio.create_task(self._read(reader))

    @classmethod
    async def open(
        cls,
        path: Path,
        hear: Callable[[str, Values], None],
        closed: Callable[[], None],
        events: Iterable[str],
    ) -> Self:
        """Connect, and register for `events`. Raises OSError."""
        connection = cls(*await asyncio.open_unix_connection(path), hear)
        try:
            for event in events:
                await connection._send(Packet.register_event(event))
        except BaseException:
            connection.close()
            raise
        connection._closed = closed
        return connection

    async def ask(self, command: str, values: Values | None = None) -> Values:
        """Return charon's answer. Raises CharonRefusal, or OSError if charon is gone or stuck."""
        kind, answer = await self._send(Packet.request(command, Message.serialize(values or {})))
        if kind != Packet.CMD_RESPONSE:
            raise CharonRefusal(say("charon-lacks-command", command=command))
        if answer.get("success", b"yes") != b"yes":
            raise CharonRefusal(answer.get("errmsg", b"").decode(errors="replace"))
        return answer

    async def collect(self, command: str, event: str, values: Values) -> list[Values]:
        """Return the events that charon streams in answer to `command`. Raises as `ask` does."""
        found: list[Values] = []
        # An event does not name the command that it answers.
        async with self._collecting:
            self._streamed = (event, found)
            try:
                await self._send(Packet.register_event(event))
                await self.ask(command, values)
                await self._send(Packet.unregister_event(event))
            finally:
                self._streamed = None
        return found

    def close(self) -> None:
        """Hang up."""
        self._closed = _nothing
        self._reading.cancel()
        self._writer.close()

    async def _send(self, packet: bytes) -> tuple[int, Values]:
        async with self._turn:
            if self._reading.done():
                raise ConnectionResetError(_GONE)
            answer: asyncio.Future[tuple[int, Values]] = asyncio.get_running_loop().create_future()
            self._awaited.append(answer)
            self._writer.write(_LENGTH.pack(len(packet)) + packet)
            try:
                # In two halves: if this process did not run, the first may end although an answer
                # is already queued.
                for _ in range(2):
                    await asyncio.wait({answer}, timeout=_ANSWER_S / 2)
                if answer.done():
                    return answer.result()
            finally:
                answer.cancel()
            # The next caller must not wait as long again for the same result.
            self._reading.cancel()
            await asyncio.wait({self._reading})
            raise OSError(say("charon-silent"))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                length = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))[0]
                if length > _SEGMENT_MAX:
                    raise ConnectionResetError("charon sent what is no packet")
                self._take(await reader.readexactly(length))
        except (OSError, EOFError, DeserializationException, struct.error):
            pass
        finally:
            for answer in self._awaited:
                if not answer.done():
                    answer.set_exception(ConnectionResetError(_GONE))
            self._writer.close()
            self._closed()

    def _take(self, data: bytes) -> None:
        packet = Packet.parse(data)
        if packet.response_type != Packet.EVENT:
            values = Message.deserialize(packet.payload) if data[1:] else {}
            # A future that is done was given up; its late answer is for no other command.
            if self._awaited and not (answer := self._awaited.popleft()).done():
                answer.set_result((packet.response_type, values))
            return
        event, values = packet.event_type.decode(), Message.deserialize(packet.payload)
        if self._streamed is not None and self._streamed[0] == event:
            self._streamed[1].append(values)
        else:
            with suppress(KeyError, UnicodeDecodeError):
                self._hear(event, values)


def _nothing() -> None:
    pass

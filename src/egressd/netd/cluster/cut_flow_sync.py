"""The flows that one box of a pair has cut, sent to the other one by the sync link.

conntrackd deletes an entry at the other box, too. What keeps the connection from being picked up
after a takeover, its key in the set `cut_flows` (`egressd.netd.kernel.cut_flows`), is in no entry.
So each box connects to the other one, sends all keys that it has, and then each one that it puts
in, with the milliseconds that are left of its time.

Nothing of it is authenticated, as conntrackd's messages are not: `sync_guard` lets the other box in
alone. A key that is wrong can have a connection reset, and lets no packet through.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from egressd.model.errors import Failed
from egressd.model.pair import PairLink
from egressd.model.wording import Sentence, say
from egressd.netd.kernel.cut_flows import TIMEOUT_S, CutFlows
from egressd.netd.system.lenience import as_far_as_possible
from egressd.netd.system.periodic import PeriodicTask

PORT: Final = 3782
"""The TCP port on the sync link."""
_GREETING: Final = b"egressd cut flows 1\n"
"""The first bytes of a connection: the records that follow are of this version."""
_RECORD: Final = struct.Struct(">16sI")
"""A key of the set, and milliseconds."""
_AGAIN_S: Final = 2.0
"""Seconds from the end of a connection, or from a failure, to the next attempt."""
_SILENT_S: Final = 4
"""Seconds after which a box that acknowledges nothing counts as gone."""
_UNANSWERED_S: Final = 10.0
"""Seconds without an answer of the other box that are no problem yet: the time of a restart."""
_READ_MAX: Final = 1 << 16
_UNSENT_MAX: Final = 1 << 23
"""Bytes that may wait for the other box: six times what a full set takes."""


class CutFlowSync:
    """Keeps cut, at each box of a pair, what the other one has cut."""

    def __init__(self, link: PairLink, cut_flows: CutFlows) -> None:
        self._link = link
        self._cut_flows = cut_flows
        self._writer: asyncio.StreamWriter | None = None
        """The connection to the other box, once it gets what is put in."""
        self._server: asyncio.Server | None = None
        self._unanswered_since: float | None = None
        """The time, of the monotonic clock, since which the other box does not answer; None while
        there is a connection to it.
        """
        self._index = 0
        """The interface that the server is bound to."""
        self._heard: asyncio.StreamWriter | None = None
        """The connection from the other box."""
        self._silent = asyncio.Event()
        """Set while there is no such connection."""
        self._silent.set()
        self._sending = PeriodicTask("send cut flows to the other box", self._send, _AGAIN_S)
        self._listening = PeriodicTask(
            "listen for cut flows of the other box", self._listen, _AGAIN_S
        )

    def open(self) -> None:
        """Connect to the other box as soon as it listens, and listen for it."""
        loop = asyncio.get_running_loop()
        self._unanswered_since = time.monotonic()
        self._cut_flows.follow(
            lambda keys: loop.call_soon_threadsafe(
                self._pass_on, dict.fromkeys(keys, TIMEOUT_S * 1000)
            )
        )
        self._sending.start()
        self._listening.start()

    @property
    def problem(self) -> Sentence | None:
        """A sentence once the other box has not answered for a while."""
        since = self._unanswered_since
        if since is None or time.monotonic() - since < _UNANSWERED_S:
            return None
        link = self._link
        return say("pair-sync-silent", name=link.interface, address=str(link.peer), port=PORT)

    async def close(self) -> None:
        """End both connections."""
        self._cut_flows.follow(None)
        await self._listening.close()
        if self._server is not None:
            self._server.close()
        await self._hang_up()
        await self._sending.close()

    # --- What is cut here. ---------------------------------------------------------------

    async def _send(self) -> None:
        """Send what is cut to the other box, until it is gone. Raises Failed if it is not there."""
        reader, writer = await self._connect()
        self._unanswered_since = None
        try:
            writer.write(_GREETING)
            self._writer = writer  # before the look: nothing is put in unseen between the two
            self._pass_on(await asyncio.to_thread(self._cut_flows.left_ms))
            with suppress(OSError):
                await reader.read(1)  # the other box sends nothing
        finally:
            self._unanswered_since = time.monotonic()
            self._writer = None
            writer.close()

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        try:
            connection = self._bound(0)
            try:
                async with asyncio.timeout(_SILENT_S):
                    peer = str(self._link.peer), PORT
                    await asyncio.get_running_loop().sock_connect(connection, peer)
                return await asyncio.open_connection(sock=connection)
            except BaseException:
                connection.close()
                raise
        except OSError as error:  # one text for all, since each other one is logged
            raise Failed("connect to it", f"TCP port {PORT} does not answer") from error

    def _pass_on(self, left_ms: Mapping[bytes, int]) -> None:
        writer = self._writer
        if writer is None:
            return
        if writer.transport.get_write_buffer_size() > _UNSENT_MAX:
            writer.transport.abort()  # the next connection begins with all that there is
            return
        writer.write(_packed(left_ms.items()))

    # --- What is cut at the other box. ---------------------------------------------------

    async def _listen(self) -> None:
        """Listen, if that is not so yet. Raises OSError."""
        index = socket.if_nametoindex(self._link.interface)
        if self._server is not None and index != self._index:
            self._server.close()  # of an interface that is gone: this one has its name
            self._server = None
        if self._server is None:
            self._server = await asyncio.start_server(self._hear, sock=self._bound(PORT))
            self._index = index

    async def _hear(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._hang_up()  # of a box that went down without an end of its connection
        self._heard = writer
        self._silent.clear()
        try:
            await self._take_over(reader)
        except (OSError, asyncio.IncompleteReadError):
            pass  # the other box is gone, and connects again
        finally:
            writer.close()
            self._silent.set()

    async def _take_over(self, reader: asyncio.StreamReader) -> None:
        if await reader.readexactly(len(_GREETING)) != _GREETING:
            return
        heard = b""
        while data := await reader.read(_READ_MAX):
            heard += data
            whole = len(heard) // _RECORD.size * _RECORD.size
            left_ms = dict(_RECORD.iter_unpack(heard[:whole]))
            heard = heard[whole:]
            with as_far_as_possible("keep flows cut that the other box has cut"):
                await asyncio.to_thread(self._cut_flows.adopt, left_ms)

    def _bound(self, port: int) -> socket.socket:
        """Return a socket that sends and receives by the sync link alone, and whose connections end
        once the other box is silent for `_SILENT_S` (tcp(7)). Raises OSError.
        """
        made = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            # Without its address the link has no route, and packets would leave by a WAN.
            device = self._link.interface.encode()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            # Connections that are accepted have these, too.
            made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENT_S * 1000)
            made.bind((str(self._link.own), port))
        except BaseException:
            made.close()
            raise
        return made

    async def _hang_up(self) -> None:
        """End the connection from the other box, and wait until all of it that came is put in."""
        # Its task is not cancelled: asyncio would log that as a failure (Python 3.11).
        if self._heard is not None:
            self._heard.transport.abort()
        await self._silent.wait()


def _packed(records: Iterable[tuple[bytes, int]]) -> bytes:
    return b"".join(_RECORD.pack(*record) for record in records)

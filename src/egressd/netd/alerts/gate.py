"""The gate of one message: its sender's connections, and no others, leave by the ways it is given.

``python -m egressd.netd.alerts.gate``, started by root with a `GateOrder` at standard input. It
answers with an `SendOutcome` at standard output.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from egressd.model.alert_urls import why_not_host
from egressd.model.wording import NONE, Sentence, say
from egressd.netd.alerts import sender
from egressd.netd.alerts.order import SEND_S, GateOrder, SendOutcome, pack, unpack_said
from egressd.netd.engine.fetch import FetchFailure, Proxy, socks_connect
from egressd.netd.system import privileges

_SAID_MAX: Final = 1 << 16
_LISTENERS_MAX: Final = 32
"""Hosts, with their ports, that one message may connect to."""
_CONNECTIONS_MAX: Final = 64
"""Connections of one message."""
_BYTES_MAX: Final = 4 << 20
"""Bytes that one message may receive, and as many that it may send."""
_CHUNK: Final = 1 << 16


class AlertGate:
    """Takes listeners from the sender, and passes their connections on."""

    def __init__(self, channel: socket.socket, ways: tuple[Proxy, ...]) -> None:
        self._channel = channel
        self._ways = ways
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._connections = 0
        self._bytes = [0, 0]
        self.problem: Sentence = NONE
        """The reason why the last connection could not be made; empty if it was."""

    async def until_outcome(self) -> SendOutcome:
        """Serve the sender until it says how its message ended, or ends itself."""
        while (said := await self._next()) is not None:
            if isinstance(said, SendOutcome):
                return said
            await self._listen(*said)
        return SendOutcome(is_sent=False, reason=say("alert-sender-ended"))

    async def _next(self) -> tuple[socket.socket, str, int] | SendOutcome | None:
        """Return the sender's next listener with its host and port, or the outcome; None if it has
        ended.
        """
        await _readable(self._channel)
        content, descriptors, _, _ = socket.recv_fds(self._channel, _SAID_MAX, 1)
        listeners = [socket.socket(fileno=each) for each in descriptors]
        if not content:
            return None
        said = unpack_said(content)
        if isinstance(said, SendOutcome):
            return said
        return (listeners[0], said.host, said.port) if listeners else None

    async def _listen(self, listener: socket.socket, host: str, port: int) -> None:
        if len(self._servers) >= _LISTENERS_MAX:
            listener.close()
            return
        serve = partial(self._serve, host, port)
        self._servers.append(await asyncio.start_server(serve, sock=listener))

    async def _serve(
        self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass one connection on, by the first way that leads there."""
        self._connections += 1
        try:
            if why_not_host(host):
                self.problem = say("alert-refused-host", host=host[:60])
                return
            if self._connections > _CONNECTIONS_MAX:
                return
            for way in self._ways:
                try:
                    there = await self._connected(way, host, port)
                except (FetchFailure, OSError, asyncio.IncompleteReadError, ValueError) as failure:
                    reason = failure.reason if isinstance(failure, FetchFailure) else None
                    self.problem = reason or say("node-closed-without-answer")
                    continue
                self.problem = NONE
                await self._splice((reader, writer), there)
                return
        finally:
            writer.transport.abort()

    async def _connected(
        self, way: Proxy, host: str, port: int
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", way.port)
        try:
            name = host if host.isascii() else host.encode("idna").decode()
            await socks_connect(reader, writer, way, name, port)
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer

    async def _splice(
        self,
        here: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        there: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        try:
            await asyncio.gather(self._pump(here[0], there[1], 0), self._pump(there[0], here[1], 1))
        finally:
            there[1].transport.abort()

    async def _pump(
        self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: int
    ) -> None:
        with suppress(OSError):
            while data := await source.read(_CHUNK):
                self._bytes[direction] += len(data)
                if self._bytes[direction] > _BYTES_MAX:
                    self.problem = say("alert-too-long", n=_BYTES_MAX)
                    sink.transport.abort()
                    return
                sink.write(data)
                await sink.drain()
            sink.write_eof()


async def _readable(channel: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(channel, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(channel)


async def _outcome(channel: socket.socket, order: GateOrder) -> SendOutcome:
    ways = tuple(Proxy(each.port, each.user, each.password) for each in order.ways)
    gate = AlertGate(channel, ways)
    try:
        async with asyncio.timeout(SEND_S):
            outcome = await gate.until_outcome()
    except TimeoutError:
        reason = gate.problem or say("alert-no-answer", seconds=round(SEND_S))
        return SendOutcome(is_sent=False, reason=reason)
    if gate.problem and not outcome.is_sent:
        return SendOutcome(is_sent=False, reason=gate.problem)
    return outcome


def main() -> None:
    """Serve one message."""
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=GateOrder)
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        here.close()
        try:
            sender.run(there, order.uid, order.gid)
        finally:
            os._exit(0)
    there.close()
    privileges.begin_drop(order.uid, order.gid)
    here.send(pack(order.message))
    # asyncio has been loaded, so nothing else of root's files is read from here on.
    privileges.finish_drop()
    outcome = asyncio.run(_outcome(here, order))
    # The kernel ends the sender with this process.
    sys.stdout.buffer.write(pack(outcome))


if __name__ == "__main__":
    main()

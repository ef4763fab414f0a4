"""The gate of one errand: its runner's connections, and no others, leave by the ways it is given.

``python -m egressd.netd.errands.gate``, started by root with a `GateOrder` at standard input. It
answers with an `ErrandOutcome` at standard output.
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

from egressd.model.outside_hosts import why_not_host
from egressd.model.wording import NONE, Sentence, say
from egressd.netd.engine.fetch import FetchFailure, Proxy, socks_connect
from egressd.netd.errands import runner
from egressd.netd.errands.order import (
    ERRAND_S,
    Errand,
    ErrandOutcome,
    GateOrder,
    PageChunk,
    PageErrand,
    WantedHost,
    pack,
    unpack_order,
    unpack_said,
)
from egressd.netd.system import privileges

_SAID_MAX: Final = 1 << 16
_LISTENERS_MAX: Final = 32
"""Hosts, with their ports, that one errand may connect to."""
_CONNECTIONS_MAX: Final = 64
"""Connections of one errand."""
_BYTES_MAX: Final = 4 << 20
"""Bytes that one errand may receive beside the page that it fetches, and as many that it may
send."""
_CHUNK: Final = 1 << 16


class ErrandGate:
    """Takes listeners from the runner, and passes their connections on."""

    def __init__(self, channel: socket.socket, ways: tuple[Proxy, ...], read_max: int) -> None:
        """`read_max`: bytes of the page that the runner fetches; 0 without one."""
        self._channel = channel
        self._read_max = read_max
        self._page = bytearray()
        self._ways = ways
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._connections = 0
        self._bytes = [0, 0]
        self.problem: Sentence = NONE
        """The reason why the last connection could not be made; empty if it was."""

    async def until_outcome(self) -> ErrandOutcome:
        """Serve the runner until it says how its errand ended, or ends itself."""
        while (said := await self._next()) is not None:
            match said:
                case ErrandOutcome():
                    content = bytes(self._page) if said.is_done else b""
                    return msgspec.structs.replace(said, content=content)
                case PageChunk(content=content):
                    self._page += content
                    if len(self._page) > self._read_max:
                        break
                case listener, WantedHost(host=host, port=port):
                    await self._listen(listener, host, port)
        return ErrandOutcome(is_done=False, reason=say("errand-ended"))

    async def _next(
        self,
    ) -> tuple[socket.socket, WantedHost] | PageChunk | ErrandOutcome | None:
        """Return what the runner says next, a wanted host with its listener; None if the runner has
        ended.
        """
        await _readable(self._channel)
        content, descriptors, _, _ = socket.recv_fds(self._channel, _SAID_MAX, 1)
        listeners = [socket.socket(fileno=each) for each in descriptors]
        if not content:
            return None
        said = unpack_said(content)
        if not isinstance(said, WantedHost):
            return said
        return (listeners[0], said) if listeners else None

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
                self.problem = say("errand-refused-host", host=host[:60])
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
        most = _BYTES_MAX + (self._read_max if direction else 0)
        with suppress(OSError):
            while data := await source.read(_CHUNK):
                self._bytes[direction] += len(data)
                if self._bytes[direction] > most:
                    self.problem = say("errand-too-long", n=most)
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


def _read_max(errand: Errand) -> int:
    return errand.read_max if isinstance(errand, PageErrand) else 0


async def _outcome(channel: socket.socket, order: GateOrder) -> ErrandOutcome:
    ways = tuple(Proxy(each.port, each.user, each.password) for each in order.ways)
    gate = ErrandGate(channel, ways, _read_max(order.errand))
    try:
        async with asyncio.timeout(ERRAND_S):
            outcome = await gate.until_outcome()
    except TimeoutError:
        reason = gate.problem or say("errand-no-answer", seconds=round(ERRAND_S))
        return ErrandOutcome(is_done=False, reason=reason)
    if gate.problem and not outcome.is_done:
        return ErrandOutcome(is_done=False, reason=gate.problem)
    return outcome


def main() -> None:
    """Serve one errand."""
    order = unpack_order(sys.stdin.buffer.read())
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        here.close()
        try:
            runner.run(there, order.uid, order.gid)
        finally:
            os._exit(0)
    there.close()
    privileges.begin_drop(order.uid, order.gid)
    here.send(pack(order.errand))
    # asyncio has been loaded, so nothing else of root's files is read from here on.
    privileges.finish_drop()
    outcome = asyncio.run(_outcome(here, order))
    # The kernel ends the runner with this process.
    sys.stdout.buffer.write(pack(outcome))


if __name__ == "__main__":
    main()

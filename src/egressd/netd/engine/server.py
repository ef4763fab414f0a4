"""The worker's side of its socket: netd's requests, and the answers to them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures.thread import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec

from egressd.model.wording import as_sentence
from egressd.netd.engine import instances
from egressd.netd.engine.instances import Instances, Refusal
from egressd.netd.engine.netlink_filter import FilterAttacher
from egressd.netd.engine.outbound_errors import OutboundErrors
from egressd.netd.engine.protocol import (
    STARTS_AT_ONCE,
    VERSION,
    AnswerBody,
    AwaitTrouble,
    CloseWay,
    InstanceList,
    List,
    Measure,
    Measured,
    OpenWays,
    QuestionBody,
    Start,
    Started,
    Stop,
    Trouble,
    WayClosed,
    WorkerAnswer,
    WorkerDone,
    WorkerQuestion,
    WorkerRefusal,
    WorkerTry,
)
from egressd.netd.system import framing
from egressd.netd.system.processes import peer_of

if TYPE_CHECKING:
    from egressd.netd.engine.serving import Ways

log = logging.getLogger("engine")

A = TypeVar("A")
R = TypeVar("R")

Measurer = Callable[[Measure], Awaitable[Measured]]

_FIRST_CONNECTION_S: Final = 30.0
"""Seconds until a trial worker without a connection ends: it has lost its netd."""

_LOG_MAX: Final = 1 << 20
"""Bytes of standard error (a file) after which it is emptied."""
_LOG_CHECK_S: Final = 10.0


class TrialWork(NamedTuple):
    """The work of a trial worker alone. Other workers do not load its modules."""

    measure: Measurer
    ways: Ways


class WorkerServer:
    """Answers root on a Unix socket. With `work` it is a trial worker's."""

    def __init__(self, work: TrialWork | None) -> None:
        self._work = work
        self._instances = Instances()
        self._troubles = OutboundErrors()
        self._filters = FilterAttacher()
        self._executor = ThreadPoolExecutor(STARTS_AT_ONCE, "engine")
        self._decoder = msgspec.msgpack.Decoder(WorkerQuestion)
        self._answering: set[asyncio.Task[None]] = set()
        self._spoken_to = False

    async def serve(self, listener: socket.socket) -> None:
        """Answer until the process ends."""
        loop = asyncio.get_running_loop()
        loop.call_later(_LOG_CHECK_S, _bound_log)
        self._troubles.open()
        if self._work is not None:
            loop.call_later(_FIRST_CONNECTION_S, self._give_up)
        # Not `start_unix_server`: from Python 3.13 on it looks up the file of a given socket
        # (CPython #133354), which a worker may not see, and removes it in the end.
        async with await asyncio.start_server(self._converse, sock=listener) as server:
            await server.serve_forever()

    def _give_up(self) -> None:
        if not self._spoken_to:
            os._exit(0)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection. Each request is a task of its own: none waits for a slow start."""
        _, uid = peer_of(writer)
        if uid != 0:
            log.warning("refused a connection from uid %d", uid)
            writer.close()
            return
        self._spoken_to = True
        try:
            while True:
                question = await framing.read(reader, self._decoder)
                task = asyncio.create_task(self._answer(question, writer))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
        except (asyncio.IncompleteReadError, ConnectionError):
            log.info("connection closed")
        except ValueError:
            log.exception("invalid request")
        finally:
            writer.close()
        if self._work is not None:
            os._exit(0)

    async def _answer(self, question: WorkerQuestion, writer: asyncio.StreamWriter) -> None:
        try:
            body = await self._do(question.body)
        except Refusal as refusal:
            body = WorkerRefusal(reason=refusal.reason, port_taken=refusal.port_taken)
        except Exception as error:
            log.exception("unexpected error in a request")
            body = WorkerRefusal(reason=as_sentence(f"{type(error).__name__}: {error}"))
        if not writer.is_closing():
            writer.write(framing.pack(WorkerAnswer(number=question.number, body=body)))
        elif isinstance(body, Started):
            # The connection is gone, and its successor may have listed the instances before this.
            await self._in_thread(self._instances.stop, body.number)

    async def _do(self, body: QuestionBody) -> AnswerBody:
        match body:
            case List():
                return InstanceList(VERSION, self._instances.live())
            case AwaitTrouble():
                return Trouble(await self._troubles.next())
            case Start():
                live = await self._in_thread(self._instances.start, body)
                self._filters.soon()
                return Started(live.number, live.started)
            case Stop(number):
                await self._in_thread(self._instances.stop, number)
            case WorkerTry(config):
                await self._in_thread(_try, config)
            case Measure():
                if self._work is None:
                    return WorkerRefusal(
                        reason=as_sentence("delays are measured in a trial worker")
                    )
                return await self._work.measure(body)
            case OpenWays(probes):
                if self._work is None:
                    return WorkerRefusal(reason=as_sentence("ways are opened in a trial worker"))
                return await self._work.ways.open(probes)
            case CloseWay(number):
                ways = None if self._work is None else self._work.ways
                return WayClosed("" if ways is None else await ways.close(number))
        return WorkerDone()

    async def _in_thread(self, function: Callable[[A], R], argument: A) -> R:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, function, argument)


def _try(config: str) -> None:
    with instances.running(config):
        pass


def _bound_log() -> None:
    """Keep the file that standard error goes to from filling the disk."""
    with suppress(OSError):
        if os.fstat(2).st_size > _LOG_MAX:
            os.ftruncate(2, 0)
    asyncio.get_running_loop().call_later(_LOG_CHECK_S, _bound_log)

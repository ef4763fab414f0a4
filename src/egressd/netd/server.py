"""netd's socket: who may speak, and what each request leads to."""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from egressd.model.errors import Failed, Invalid
from egressd.model.messages import (
    ApplyChange,
    Counters,
    Delays,
    Done,
    GetCounters,
    GetStatus,
    Halt,
    Locate,
    Located,
    MeasureDelay,
    News,
    Refused,
    Reply,
    ReplyBody,
    Request,
    SetPlan,
    Trial,
    Try,
)
from egressd.netd import framing
from egressd.netd.processes import peer_of
from egressd.netd.reconciler import Conflict, Reconciler

log = structlog.get_logger()

_UNREAD_MAX: Final = 4 << 20
"""Bytes of news that may wait for one who does not read: a frozen api, say."""


class Server:
    """Answers the api on a Unix socket that only its user and root can open.

    The file's mode keeps others out; the peer's credentials are checked all the same, since a
    run directory may have been made by hand.
    """

    def __init__(self, path: Path, uid: int, reconciler: Reconciler) -> None:
        self._path = path
        self._uid = uid
        self._reconciler = reconciler
        self._watchers: set[asyncio.StreamWriter] = set()
        self._planner: asyncio.StreamWriter | None = None
        """The connection that plans come by: two apis would each undo what the other wants."""
        self._decoder = msgspec.msgpack.Decoder(Request)

    async def open(self) -> None:
        """Listen. A socket file left by an earlier netd is replaced, a missing folder made."""
        self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._path.unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        mask = os.umask(0o177)
        try:
            listener.bind(str(self._path))
        finally:
            os.umask(mask)
        os.chown(self._path, self._uid, -1)
        # Not `start_unix_server`: from Python 3.13 on it asks for the file of a socket that it is
        # given (CPython #133354), which a worker may not see, and removes it in the end.
        self._server = await asyncio.start_server(self._serve, sock=listener)

    async def verify(self) -> None:
        """Listen anew if the socket's file is gone: somebody has cleared the run directory.

        Connections go on meanwhile, but nobody could make another.
        """
        try:
            if not self._path.is_socket():
                log.warning(
                    "listening again, since the socket's file is gone", file=str(self._path)
                )
                self._server.close()
                await self.open()
        except OSError as error:
            log.warning("could not listen again", error=str(error))

    async def close(self) -> None:
        """Stop listening and drop everyone."""
        self._server.close()
        for writer in list(self._watchers):
            writer.close()
        self._path.unlink(missing_ok=True)

    def publish(self, news: News) -> None:
        """Send `news` to every connection that watches."""
        frame = framing.pack(news)
        for writer in self._watchers:
            if writer.transport.get_write_buffer_size() > _UNREAD_MAX:
                writer.transport.abort()  # one that comes back asks how things are
            else:
                writer.write(frame)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        pid, uid = peer_of(writer)
        if uid not in (0, self._uid):
            log.warning("refused a connection", uid=uid, pid=pid)
            writer.close()
            return
        tasks: set[asyncio.Task[None]] = set()
        try:
            while True:
                request = await framing.read(reader, self._decoder)
                task = asyncio.create_task(self._answer(request, writer))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except ValueError as error:  # msgspec.DecodeError is one
            log.warning("dropped a connection that sent nonsense", pid=pid, error=str(error))
        finally:
            self._watchers.discard(writer)
            if self._planner is writer:
                self._planner = None
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        try:
            body = await self._do(request, writer)
        except Invalid as error:
            body = Refused(kind="invalid", action="check the plan", cause=str(error))
        except Conflict as error:
            body = Refused(kind="conflict", action="apply a change", cause=str(error))
        except Failed as error:
            body = Refused(kind="failed", action=error.action, cause=error.cause)
        except Exception as error:
            log.exception("a request failed in an unforeseen way")
            body = Refused(kind="failed", action="answer the request", cause=repr(error))
        with suppress(ConnectionError):
            writer.write(framing.pack(Reply(number=request.number, body=body)))
            await writer.drain()

    async def _do(self, request: Request, writer: asyncio.StreamWriter) -> ReplyBody:
        reconciler = self._reconciler
        if isinstance(request.body, SetPlan | ApplyChange | Halt):
            if self._planner not in (None, writer):
                raise Failed("take a plan", "another api says what is wanted")
            self._planner = writer
        match request.body:
            case SetPlan(plan=plan):
                await reconciler.set_plan(plan)
                return Done()
            case ApplyChange(change=change):
                await reconciler.apply(change)
                return Done()
            case Halt(reason=reason):
                await reconciler.halt(reason)
                return Done()
            case GetStatus():
                return await reconciler.status()
            case Try(configs=configs):
                return Trial(tuple(await reconciler.pool.try_configs(configs)))
            case MeasureDelay(probes=probes, url=url, timeout_ms=timeout_ms):
                return Delays(await reconciler.pool.delays(probes, url, timeout_ms))
            case Locate(client=client):
                machine = reconciler.machine
                return Located(await machine.locate(client), machine.members(client))
            case GetCounters():
                return Counters(await reconciler.counters())
            case _:
                self._watchers.add(writer)
                writer.write(framing.pack(reconciler.line_news))
                writer.write(framing.pack(reconciler.status_news))
                return Done()

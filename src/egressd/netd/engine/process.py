"""One engine worker from netd's side: a process to start or adopt, ask, watch and end.

A process is only ever signalled through its pidfd (pidfd_open(2)), so never another one that got
its pid.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator, Coroutine
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from egressd.netd.engine import launch, scope
from egressd.netd.engine.launch import Account
from egressd.netd.engine.protocol import (
    VERSION,
    AnswerBody,
    AwaitTrouble,
    InstanceList,
    List,
    Live,
    Ping,
    QuestionBody,
    Trouble,
    WorkerAnswer,
    WorkerQuestion,
)
from egressd.netd.system import framing
from egressd.netd.system.patience import GivenUp, WaitLimits, of_main_thread
from egressd.netd.system.processes import how_it_ended, peer_of

T = TypeVar("T")

_START: Final = WaitLimits(silence_s=15.0, work_s=30.0)
"""Limits of the start of a worker. On an idle machine it answers after 0.5 s, half of which it
computes."""
_ADOPT: Final = WaitLimits(silence_s=5.0, work_s=5.0)
"""Limits of the adoption of a worker. It serves clients, so its end cuts connections."""
_PING_EVERY_S: Final = 1.0
_PING_WAIT_S: Final = 2.0
_DEATH_S: Final = 1.0
"""Seconds to wait for the cause of a worker's end before the loss is reported without it."""


class Lost(Exception):
    """The worker ended, or was ended because it no longer answered; the text says how."""


class WorkerProcess:
    """A living worker and a connection to it. Made by `start` or `adopt`.

    ``ended`` gets the reason once the worker is lost. By then it was sent SIGKILL, and every `ask`
    under way has raised Lost.
    """

    def __init__(self, path: Path, pid: int, pidfd: int, account: Account) -> None:
        loop = asyncio.get_running_loop()
        self.pid = pid
        self.instances: tuple[Live, ...] = ()
        """The instances that it ran when it was adopted."""
        self.ended: asyncio.Future[str] = loop.create_future()
        self._path = path
        self._account = account
        self._pidfd = pidfd
        self._gone = asyncio.Event()
        self._verdict = ""
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[AnswerBody]] = {}
        self._writer: asyncio.StreamWriter | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        loop.add_reader(pidfd, self._exited)

    # --- Start and adoption. ----------------------------------------------------------------

    @classmethod
    async def start(cls, path: Path, account: Account, *, trial: bool = False) -> WorkerProcess:
        """Start a worker that listens on `path`; a process that serves it now is killed.

        Raises Lost, with the last line of its log, if the new one ends or makes no progress.
        """
        if (living := launch.holder(path)) is not None:
            await cls(path, *living, account).kill()
        pid = launch.spawn(path, account, trial=trial)
        worker = cls(path, pid, os.pidfd_open(pid), account)
        try:
            await worker._connect_within(_START)
        except GivenUp as given_up:
            await worker.kill()
            raise Lost(f"it was not ready after {given_up.waited_s:.0f} s") from None
        except BaseException:
            await worker.kill()
            raise
        return worker

    @classmethod
    async def adopt(cls, path: Path, account: Account) -> WorkerProcess | None:
        """Return the worker that lives at `path`, if there is a usable one.

        A worker that makes no progress, or uses another protocol version, is killed.
        """
        if (living := launch.holder(path)) is None:
            return None
        worker = cls(path, *living, account)
        try:
            await worker._connect_within(_ADOPT)
        except (OSError, Lost, GivenUp):
            await worker.kill()
            return None
        except BaseException:
            worker.release()
            raise
        return worker

    async def _connect_within(self, limits: WaitLimits) -> None:
        """Raises GivenUp, and what `_connect` raises."""
        connecting = asyncio.ensure_future(self._connect())
        try:
            # Its first thread loads the modules, and answers; the engine's serve clients.
            await limits.wait_for(connecting, partial(of_main_thread, self.pid))
        finally:
            connecting.cancel()
        connecting.result()

    async def _connect(self) -> None:
        while True:
            try:
                reader, self._writer = await asyncio.open_unix_connection(self._path)
                break
            except (FileNotFoundError, ConnectionRefusedError):
                if self.ended.done():
                    raise Lost(self.ended.result()) from None
                await asyncio.sleep(0.01)
        if peer_of(self._writer)[0] != self.pid:
            raise Lost("another process listens on its socket")
        self._run(self._receive(reader))
        listing = await self.ask(List())
        if not isinstance(listing, InstanceList) or listing.version != VERSION:
            raise Lost("it speaks another version")
        self.instances = listing.instances
        self._run(self._watch())
        self._run(scope.isolate(self.pid, self._path.stem, self._account.memory_max))

    # --- Requests. --------------------------------------------------------------------------

    async def ask(self, body: QuestionBody) -> AnswerBody:
        """Return the worker's answer. Raises Lost if it ends first."""
        if self.ended.done():
            raise Lost(self.ended.result())
        assert self._writer is not None
        number = next(self._numbers)
        answer: asyncio.Future[AnswerBody] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            self._writer.write(framing.pack(WorkerQuestion(number=number, body=body)))
            return await answer
        finally:
            self._waiting.pop(number, None)

    async def _receive(self, reader: asyncio.StreamReader) -> None:
        decoder = framing.decoder_of(WorkerAnswer)
        try:
            while True:
                answer = await framing.read(reader, decoder)
                waiting = self._waiting.get(answer.number)
                if waiting is not None and not waiting.done():
                    waiting.set_result(answer.body)
        except (asyncio.IncompleteReadError, ConnectionError):
            self._lose("it closed its connection")
        except ValueError as error:  # msgspec.DecodeError is one
            self._lose(f"it sent what is no answer: {error}")

    async def _watch(self) -> None:
        """Ping the worker, and lose it if it stays silent."""
        while True:
            await asyncio.sleep(_PING_EVERY_S)
            ping = self._run(self.ask(Ping()))
            # Wait in two halves: if this process was held up, an answer that came meanwhile is read
            # between them.
            for _ in range(2):
                await asyncio.wait({ping}, timeout=_PING_WAIT_S / 2)
            if not ping.done():
                ping.cancel()
                self._verdict = f"it did not answer for {_PING_WAIT_S:.0f} s"
                self._lose(self._verdict)
                return
            with suppress(Lost):
                ping.result()

    async def troubles(self) -> AsyncIterator[tuple[str, ...]]:
        """Yield tags of outbounds through which connections fail, as they come, until the worker
        ends.
        """
        with suppress(Lost):
            while isinstance(answer := await self.ask(AwaitTrouble()), Trouble):
                yield answer.tags

    def _run(self, work: Coroutine[None, None, T]) -> asyncio.Task[T]:
        """Run a task until the worker ends."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    # --- End. -------------------------------------------------------------------------------

    async def kill(self) -> None:
        """End the worker now, and wait until it is gone."""
        self._verdict = self._verdict or "it was ended"
        self._signal()
        await self._gone.wait()

    async def gone(self) -> None:
        """Wait until the process no longer exists."""
        await self._gone.wait()

    def release(self) -> None:
        """Leave the worker running, for a later netd to adopt."""
        self._finish("netd let it go")
        if not self._gone.is_set():
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._gone.set()

    def _lose(self, reason: str) -> None:
        """Kill the worker. The way it ended is a better explanation than `reason`, unless it takes
        too long.
        """
        self._signal()
        asyncio.get_running_loop().call_later(_DEATH_S, self._finish, reason)

    def _signal(self) -> None:
        if not self._gone.is_set():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _exited(self) -> None:
        """Handle the end of the process: its pidfd became readable."""
        asyncio.get_running_loop().remove_reader(self._pidfd)
        how = how_it_ended(self._pidfd)
        os.close(self._pidfd)
        self._gone.set()
        words = launch.last_words(self._path)
        self._finish(self._verdict or (f"{how}: {words}" if words else how))

    def _finish(self, reason: str) -> None:
        """Raise Lost in all waiting calls."""
        if self.ended.done():
            return
        self.ended.set_result(reason)
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(Lost(reason))
        for task in self._tasks:
            task.cancel()
        if self._writer is not None:
            self._writer.close()

"""The trial worker, in which configurations are tried and delays measured.

It serves no client, so a configuration that crashes the engine does no harm here. It is started
when it is needed and ended when it has been idle for a while: it takes as much memory as a worker
that serves clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from egressd.model.delays import Delay
from egressd.model.errors import Failed
from egressd.model.messages import MEASURED_EACH_S
from egressd.model.wording import NONE, Sentence, as_sentence, say
from egressd.netd.engine import launch
from egressd.netd.engine.launch import Account
from egressd.netd.engine.listeners import Listeners
from egressd.netd.engine.process import Lost, WorkerProcess
from egressd.netd.engine.protocol import (
    AnswerBody,
    CloseWay,
    Measure,
    Measured,
    OpenWays,
    ProbeDocument,
    QuestionBody,
    Way,
    WayClosed,
    WaysOpened,
    WorkerRefusal,
    WorkerTry,
)

_IDLE_S: Final = 18.0
"""Seconds without work after which the worker ends. The nodes in use of groups are checked every
15 s by default, and nodes that fail every 10 s: it stays for them, since a start takes more
processor time than a check."""
_TRY_S: Final = 20.0
"""Seconds until a start counts as hanging; it takes milliseconds."""


class Crashed(Exception):
    """The engine crashed on a configuration, twice; the text says how."""


class OpenedWays:
    """Listeners, and what the engine said about each once they are closed."""

    def __init__(self, ways: tuple[Way, ...]) -> None:
        self.ways = ways
        self.errors: tuple[str, ...] = ()
        """The engine's first error of each way, in their order; empty texts for none."""


class TrialWorker(Protocol):
    """A worker that tries and measures: see `WorkerProcess`."""

    @property
    def pid(self) -> int: ...

    @property
    def ended(self) -> asyncio.Future[str]: ...

    async def ask(self, body: QuestionBody) -> AnswerBody: ...

    async def kill(self) -> None: ...

    def release(self) -> None: ...


async def start_worker(path: Path, account: Account) -> TrialWorker:
    """Start the process of a trial worker. Raises Lost, OSError."""
    return await WorkerProcess.start(path, account, trial=True)


class Trials:
    """Tries and measures in a worker of its own. Usable again after every crash."""

    def __init__(
        self,
        path: Path,
        account: Account,
        start: Callable[[Path, Account], Awaitable[TrialWorker]] = start_worker,
    ) -> None:
        self._path = path
        self._account = account
        self._start_worker = start
        self.worker: TrialWorker | None = None
        """The worker; None until it is needed."""
        self._starting = asyncio.Lock()
        self._trying = asyncio.Lock()
        self._users = 0
        self._idle: asyncio.TimerHandle | None = None
        self._ending: asyncio.Task[None] | None = None
        """The end of the worker before; the next one is started after it."""

    async def problem(self, config: str) -> Sentence:
        """Return the reason why the engine refuses `config`; empty if it does not.

        Its listeners are put on free loopback ports first: the availability of its own ports is not
        tested. Raises Crashed, and Failed if no trial worker is available.
        """
        try:
            harmless = Listeners(config).nowhere()
        except ValueError as error:
            return as_sentence(str(error))
        # One at a time, so that a crash has one possible cause; twice, because a measurement that
        # runs at the same time is another possible cause.
        how = ""
        for _ in range(2):
            try:
                async with self._trying, self._use() as worker:
                    return await _try(worker, harmless)
            except Lost as lost:
                how = str(lost)
        raise Crashed(how)

    async def problems(self, configs: Sequence[str]) -> list[Sentence]:
        """For each of `configs` return the reason why the engine refuses it; empty if it does
        not.
        """
        found = []
        for config in configs:
            try:
                found.append(await self.problem(config))
            except Crashed as crashed:
                found.append(say("engine-crashes", reason=str(crashed)))
        return found

    async def delays(
        self, probes: Sequence[ProbeDocument], url: str, timeout_ms: int
    ) -> dict[str, Delay]:
        """Measure each probe. Raises Failed if no trial worker is available."""
        try:
            return await self._measure(probes, url, timeout_ms)
        except Lost:
            # Some probe crashes the engine. Probes that crash it when they are tried are left out.
            found = await self.problems([probe.config for probe in probes])
        results = {
            probe.name: Delay(delay=-1, error=problem)
            for probe, problem in zip(probes, found, strict=True)
            if problem
        }
        sound = [probe for probe in probes if probe.name not in results]
        try:
            return results | await self._measure(sound, url, timeout_ms)
        except Lost as lost:
            error = say("engine-crashed", reason=str(lost))
            return results | {probe.name: Delay(delay=-1, error=error) for probe in sound}

    @asynccontextmanager
    async def ways(self, probes: Sequence[ProbeDocument]) -> AsyncIterator[OpenedWays]:
        """Yield a SOCKS5 listener for each probe, whose connections leave by the probe alone.

        Raises Failed if the engine refuses one, or no trial worker is available.
        """
        async with self._use() as worker:
            opened = OpenedWays(await _open_ways(worker, tuple(probes)))
            try:
                yield opened
            finally:
                opened.errors = await _close_ways(worker, opened.ways)

    async def close(self) -> None:
        """End the worker, and wait until it is gone."""
        if self._idle is not None:
            self._idle.cancel()
        self._retire()
        await self._ended()

    def release(self) -> None:
        """Drop the connection; the worker ends by itself then."""
        if self._idle is not None:
            self._idle.cancel()
        if self.worker is not None:
            self.worker.release()
            self.worker = None

    async def _measure(
        self, probes: Sequence[ProbeDocument], url: str, timeout_ms: int
    ) -> dict[str, Delay]:
        measure = Measure(probes=tuple(probes), url=url, timeout_ms=timeout_ms)
        async with self._use() as worker:
            try:
                async with asyncio.timeout(
                    timeout_ms / 1000 + len(probes) * MEASURED_EACH_S + _TRY_S
                ):
                    answer = await worker.ask(measure)
            except TimeoutError:
                await worker.kill()
                raise Failed("measure delays", "the engine hangs") from None
        if isinstance(answer, Measured):
            return answer.delays
        assert isinstance(answer, WorkerRefusal)
        raise Failed("measure delays", answer.reason)

    @asynccontextmanager
    async def _use(self) -> AsyncIterator[TrialWorker]:
        """Yield a living worker, kept from going idle."""
        self._users += 1
        if self._idle is not None:
            self._idle.cancel()
        try:
            async with self._starting:
                await self._ended()
                if self.worker is None or self.worker.ended.done():
                    self.worker = await self._start()
            yield self.worker
        finally:
            self._users -= 1
            if not self._users:
                self._idle = asyncio.get_running_loop().call_later(_IDLE_S, self._retire)

    async def _start(self) -> TrialWorker:
        try:
            return await self._start_worker(self._path, self._account)
        except (Lost, OSError) as error:
            raise Failed("start the trial engine", str(error)) from error

    def _retire(self) -> None:
        """Begin to end the worker. None is in use: `_use` would have stopped the timer."""
        if self.worker is not None:
            self._ending = asyncio.ensure_future(self._end(self.worker))
            self.worker = None

    async def _end(self, worker: TrialWorker) -> None:
        await worker.kill()
        launch.remove_files(self._path)

    async def _ended(self) -> None:
        """Wait until no worker is about to end."""
        if self._ending is not None:
            await asyncio.wait({self._ending})


async def _try(worker: TrialWorker, config: str) -> Sentence:
    try:
        async with asyncio.timeout(_TRY_S):
            answer = await worker.ask(WorkerTry(config))
    except TimeoutError:
        await worker.kill()
        raise Lost(f"it did not start within {_TRY_S:.0f} s") from None
    return answer.reason if isinstance(answer, WorkerRefusal) else NONE


async def _open_ways(worker: TrialWorker, probes: tuple[ProbeDocument, ...]) -> tuple[Way, ...]:
    try:
        async with asyncio.timeout(_TRY_S):
            answer = await worker.ask(OpenWays(probes))
    except TimeoutError:
        await worker.kill()
        raise Failed("open a way", "the engine hangs") from None
    except Lost as lost:
        raise Failed("open a way", str(say("engine-crashed", reason=str(lost)))) from lost
    if isinstance(answer, WaysOpened):
        return answer.ways
    assert isinstance(answer, WorkerRefusal)
    raise Failed("open a way", answer.reason)


async def _close_ways(worker: TrialWorker, ways: Sequence[Way]) -> tuple[str, ...]:
    errors = []
    try:
        async with asyncio.timeout(_TRY_S):
            for way in ways:
                answer = await worker.ask(CloseWay(way.number))
                errors.append(answer.error if isinstance(answer, WayClosed) else "")
    except TimeoutError:
        await worker.kill()
    except Lost:
        pass  # they have ended with it
    return tuple(errors)

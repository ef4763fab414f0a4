"""A place for a worker: kept occupied, with a back-off when workers die."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from egressd.model.wording import NONE, as_sentence, say
from egressd.netd.engine.launch import Account
from egressd.netd.engine.process import Lost, WorkerProcess
from egressd.netd.engine.protocol import STARTS_AT_ONCE, Live
from egressd.netd.engine.slots import SlotView

log = structlog.get_logger()

SERVICES: Final = 0
"""Index of the slot whose worker runs proxy services. These may be open to all clients: the worker
has descriptors and memory of its own, so that proxy clients take none from LAN clients."""

_FIRST_S: Final = 5.0
"""Seconds that a slot's first worker is waited for, before instances start elsewhere. Their clients
are not blocked, or not yet."""
_REPLACED_S: Final = 2.0
"""Seconds that a lost worker's successor is waited for: it answers after 0.5 s."""
_BACKOFF_FIRST_S: Final = 0.1
_BACKOFF_MAX_S: Final = 30.0
_HEALTHY_S: Final = 60.0
"""Seconds of a worker's life after which its slot's back-off starts anew."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A running instance.

    ``worker`` is its worker's slot; ``port`` is the port it listens on, 0 for none. ``pid`` and
    ``number`` identify it. ``started`` is in nanoseconds of CLOCK_MONOTONIC.
    """

    key: str
    digest: str
    port: int
    worker: int
    pid: int
    number: int
    started: int


class Slot:
    """Keeps one worker alive, adopting it first if it lives already.

    The worker of a `spare` slot exceeds the pool's size: it is adopted for the instances that it
    runs, and not replaced. `on_arrival` is called with the slot when it has a worker, `on_loss`
    with the instances that went down with one, `on_trouble` with the tags of outbounds through
    which connections fail.
    """

    def __init__(
        self,
        index: int,
        path: Path,
        account: Account,
        *,
        spare: bool,
        on_arrival: Callable[[Slot], None],
        on_loss: Callable[[list[Running]], None],
        on_trouble: Callable[[Iterable[str]], None],
    ) -> None:
        self.index = index
        self.worker: WorkerProcess | None = None
        self.problem = NONE
        """The reason why it has no worker, if it should have one."""
        self._path = path
        self._account = account
        self._spare = spare
        self._on_arrival = on_arrival
        self._on_loss = on_loss
        self._on_trouble = on_trouble
        self._running: dict[int, Running] = {}
        """Number -> instance."""
        self._keys: Counter[str] = Counter()
        """Key -> number of instances that run here or are about to."""
        self._lost: set[str] = set()
        """Keys of the instances that went down with the worker before."""
        self._awaited_until = asyncio.get_running_loop().time() + _FIRST_S
        """Time by the loop's clock until which its next worker is waited for."""
        self._changed = asyncio.Event()
        self._gate = asyncio.Semaphore(STARTS_AT_ONCE)
        self._tried = asyncio.Event()
        self._idle = asyncio.Event()
        """Set while no worker is being started."""
        self._idle.set()
        self._going: WorkerProcess | None = None
        """The worker before, which was killed and may not be gone yet."""
        self._keeper: asyncio.Task[None] | None = None

    # --- Instances. ---------------------------------------------------------------------------

    def view(self) -> SlotView:
        """Return its state, for `egressd.netd.engine.slots` to decide."""
        is_usable = not self._spare and (self._is_up() or self._is_awaited())
        lost = self._lost if self._time_left() > 0 else ()
        return SlotView(keys=self._keys.keys(), lost=lost, is_usable=is_usable)

    def _is_up(self) -> bool:
        return self.worker is not None and not self.worker.ended.done()

    def _is_awaited(self) -> bool:
        """Return whether it gets another worker soon, also if a loss is about to be noticed."""
        return not self._spare and (self.worker is not None or self._time_left() > 0)

    def _time_left(self) -> float:
        return self._awaited_until - asyncio.get_running_loop().time()

    @asynccontextmanager
    async def turn(self, key: str) -> AsyncIterator[WorkerProcess | None]:
        """Wait for a turn to start an instance of `key`, which counts from now on.

        Yields the worker, or None if none has come in time, or it went down meanwhile.
        """
        self._expect(key)
        try:
            while not self._is_up() and self._is_awaited():
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(self._awaited_until):
                        await self._changed.wait()
            async with self._gate:
                yield self.worker if self._is_up() and not self._spare else None
        finally:
            self._release(key)

    def add(self, live: Live) -> Running:
        """Record an instance that its worker runs."""
        assert self.worker is not None
        running = Running(
            key=live.key,
            digest=live.digest,
            port=live.port,
            worker=self.index,
            pid=self.worker.pid,
            number=live.number,
            started=live.started,
        )
        self._running[running.number] = running
        self._expect(running.key)
        return running

    def drop(self, running: Running) -> bool:
        """Forget an instance. Return False if it does not run here."""
        if self._running.get(running.number) != running:
            return False
        del self._running[running.number]
        self._release(running.key)
        return True

    def running(self) -> list[Running]:
        """Return the instances that its worker runs."""
        return [*self._running.values()]

    def _expect(self, key: str) -> None:
        self._lost.discard(key)
        self._keys[key] += 1

    def _release(self, key: str) -> None:
        self._keys[key] -= 1
        if not self._keys[key]:
            del self._keys[key]

    # --- Its worker. --------------------------------------------------------------------------

    def open(self) -> None:
        """Begin to keep the worker."""
        self._keeper = asyncio.create_task(self._keep())

    async def first_try(self) -> None:
        """Wait until the first worker is up, or has failed to come up."""
        await self._tried.wait()

    async def attempted(self) -> None:
        """Wait until the start of a worker that is under way has ended, if there is one."""
        await self._idle.wait()

    async def close(self) -> None:
        """End its worker, and wait until that is gone."""
        self.retire()
        if self._keeper is not None:
            await asyncio.wait({self._keeper})
        for worker in (self.worker, self._going):
            if worker is not None:
                await worker.kill()
        self.worker = None

    def release(self) -> None:
        """Leave its worker running for a later netd."""
        self.retire()
        if self.worker is not None:
            self.worker.release()
            self.worker = None

    def retire(self) -> None:
        """Start no further instance here, and replace its worker no more."""
        self._spare = True
        self._changed.set()
        if self._keeper is not None:
            self._keeper.cancel()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = _BACKOFF_FIRST_S
        await self._adopt()
        while True:
            if self.worker is None and not self._spare:
                await self._fill()
            self._changed.set()
            since = loop.time()
            if self.worker is not None:
                self._on_arrival(self)
            self._tried.set()
            if self.worker is not None:
                await self._outlive(self.worker)
            if self._spare:
                return
            if loop.time() - since >= _HEALTHY_S:
                backoff = _BACKOFF_FIRST_S
            await asyncio.sleep(backoff)
            backoff = min(backoff * 2, _BACKOFF_MAX_S)

    async def _adopt(self) -> None:
        try:
            self.worker = await WorkerProcess.adopt(self._path, self._account)
        except OSError as error:
            log.error("cannot adopt an engine worker", worker=self.index, why=str(error))
        if self.worker is not None:
            for live in self.worker.instances:
                self.add(live)

    async def _fill(self) -> None:
        self._idle.clear()
        try:
            self.worker = await WorkerProcess.start(self._path, self._account)
            self.problem = NONE
        except (Lost, OSError) as error:
            self._awaited_until = 0.0
            self.problem = say("worker-does-not-start", reason=str(error))
            log.error("engine worker did not start", worker=self.index, why=str(error))
        finally:
            self._idle.set()

    async def _outlive(self, worker: WorkerProcess) -> None:
        """Wait for the worker's end, report it, and wait until the process is gone."""
        async for tags in worker.troubles():
            # Not called from here: an error in the callback must not end the supervision.
            asyncio.get_running_loop().call_soon(self._on_trouble, tags)
        await asyncio.wait({worker.ended})
        why = worker.ended.result()
        log.error("engine worker lost", worker=self.index, why=why)
        self.problem = NONE if self._spare else as_sentence(why)
        self.worker, self._going = None, worker
        self._awaited_until = asyncio.get_running_loop().time() + _REPLACED_S
        lost = self.running()
        for running in lost:
            self.drop(running)
        self._lost = {running.key for running in lost}
        self._changed.set()
        if lost:
            self._on_loss(lost)
        await worker.gone()

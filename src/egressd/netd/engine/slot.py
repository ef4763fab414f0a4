"""A place for a worker: kept occupied, with a back-off when workers die."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import structlog

from egressd.model.wording import NONE, as_sentence, say
from egressd.netd.engine.launch import Account
from egressd.netd.engine.process import START_S, Lost, WorkerProcess
from egressd.netd.engine.protocol import STARTS_AT_ONCE, Live

log = structlog.get_logger()

SERVICES: Final = 0
"""Index of the slot whose worker runs proxy services. These may be open to all clients: the worker
has descriptors and memory of its own, so that proxy clients take none from LAN clients."""

REPLACED_S: Final = 2.0
"""Seconds that a lost worker's successor is waited for: it answers after 0.5 s."""
_BACKOFF_FIRST_S: Final = 0.1
_BACKOFF_MAX_S: Final = 30.0
_PATIENCE_MAX_S: Final = 240.0
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
    runs, and not replaced. `on_loss` is called with the instances that went down with a worker,
    `on_trouble` with the tags of outbounds through which connections fail.
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
        self.running: dict[int, Running] = {}
        """Number -> instance."""
        self.problem = NONE
        """The reason why it has no worker, if it should have one."""
        self._path = path
        self._account = account
        self._spare = spare
        self._on_arrival = on_arrival
        self._on_loss = on_loss
        self._on_trouble = on_trouble
        self._gate = asyncio.Semaphore(STARTS_AT_ONCE)
        self._expected = 0
        self._awaited_until = 0.0
        """Time by the loop's clock."""
        self._patience_s = START_S
        self._tried = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None

    @property
    def takes_instances(self) -> bool:
        """True if new instances may be started in it now."""
        return not self._spare and self.worker is not None and not self.worker.ended.done()

    @property
    def is_coming(self) -> bool:
        """True if it has just lost its worker, and is about to get another."""
        return self.worker is None and asyncio.get_running_loop().time() < self._awaited_until

    @property
    def load(self) -> int:
        """Number of instances that run in it or are about to."""
        return len(self.running) + self._expected

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[WorkerProcess | None]:
        """Wait for a turn to start an instance. Yields the worker, or None if it went down
        meanwhile.
        """
        self._expected += 1
        try:
            async with self._gate:
                yield self.worker if self.takes_instances else None
        finally:
            self._expected -= 1

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
        self.running[running.number] = running
        return running

    async def open(self) -> None:
        """Begin to keep the worker. Returns once the first one is up, or has failed to come up."""
        self._keeper = asyncio.create_task(self._keep())
        await self._tried.wait()

    async def close(self) -> None:
        """End its worker."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.wait({self._keeper})
        if self.worker is not None:
            await self.worker.kill()

    def release(self) -> None:
        """Leave its worker running for a later netd."""
        if self._keeper is not None:
            self._keeper.cancel()
        if self.worker is not None:
            self.worker.release()

    async def drop_if_spare(self) -> None:
        """End the worker of a spare slot once nothing runs there any more."""
        if self._spare and not self.load:
            await self.close()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        backoff = _BACKOFF_FIRST_S
        await self._adopt()
        while True:
            if self.worker is None and not self._spare:
                await self._fill()
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
        try:
            self.worker = await WorkerProcess.start(
                self._path, self._account, patience_s=self._patience_s
            )
            self.problem = NONE
        except (Lost, OSError) as error:
            # On a very slow machine a fixed patience might never be enough.
            self._patience_s = min(2 * self._patience_s, _PATIENCE_MAX_S)
            self.problem = say("worker-does-not-start", reason=str(error))
            log.error("engine worker did not start", worker=self.index, why=str(error))

    async def _outlive(self, worker: WorkerProcess) -> None:
        """Wait for the worker's end, report it, and wait until the process is gone."""
        async for tags in worker.troubles():
            # Not called from here: an error in the callback must not end the supervision.
            asyncio.get_running_loop().call_soon(self._on_trouble, tags)
        await asyncio.wait({worker.ended})
        why = worker.ended.result()
        log.error("engine worker lost", worker=self.index, why=why)
        self.problem = NONE if self._spare else as_sentence(why)
        lost = list(self.running.values())
        self.running = {}
        self._awaited_until = asyncio.get_running_loop().time() + REPLACED_S
        if lost:
            self._on_loss(lost)
        await worker.gone()
        self.worker = None

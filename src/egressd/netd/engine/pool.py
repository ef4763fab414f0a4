"""The pool: every engine instance of the device, in as few worker processes as suffice.

An instance is never changed: its successor is started on a port of its own, and once the kernel
sends clients there, the old one is stopped. Workers outlive netd; a pool that opens on the same
folder finds them again, with their instances.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog

from egressd.model.delays import Delay
from egressd.model.errors import Failed, Invalid
from egressd.model.wording import Sentence, say
from egressd.netd.engine import answers, batch
from egressd.netd.engine.document import Document
from egressd.netd.engine.launch import Account
from egressd.netd.engine.listeners import Listeners
from egressd.netd.engine.process import Lost, WorkerProcess
from egressd.netd.engine.protocol import (
    AnswerBody,
    Live,
    ProbeDocument,
    Start,
    Started,
    Stop,
    WorkerRefusal,
)
from egressd.netd.engine.quarantine import Quarantine, Quarantined
from egressd.netd.engine.rule_sets import RuleSets
from egressd.netd.engine.slot import Running, Slot
from egressd.netd.engine.trial import OpenedWays, Trials
from egressd.netd.engine.urls import parse_url
from egressd.netd.engine.workers import Workers
from egressd.netd.kernel import udp_ports
from egressd.netd.system.patience import GivenUp, WaitLimits, of_process
from egressd.netd.system.port_range import PortRange
from egressd.planner.registry import ENGINE_PORTS

log = structlog.get_logger()

SIZE: Final = 4
"""Number of workers of a pool at most, besides that of proxy services. Starting an instance takes
longer the more its worker runs (10 ms at 100, over 100 ms at 1,000), and a worker that dies takes
only its own instances along."""

_START: Final = WaitLimits(silence_s=20.0, work_s=20.0, longest_s=40.0)
"""Limits of the start of an instance, which takes up to 0.2 s. Its worker may serve clients
meanwhile, which looks like progress: so the time has a limit, too, which is shorter than the api's
patience (60 s, `egressd.netd.ipc.client`)."""
_STOP_S: Final = 10.0
_PORT_TRIES: Final = 100
"""Number of ports taken by other programs after which a start fails."""


class _Declined(Exception):
    """The engine refused to start a configuration."""

    def __init__(self, refused: WorkerRefusal) -> None:
        super().__init__(refused.reason)
        self.port_taken = refused.port_taken


class Pool:
    """Starts and stops instances, and watches over the workers that run them, `size` at most.

    Workers run as `account` says. `run_dir` is made, for root only. `on_lost` is called with the
    instances that went down with a worker; `running` no longer contains them. `on_trouble` is
    called with the tags of outbounds through which clients' connections fail. `mapped` returns the
    ports that the kernel sends clients to: as long as it contains the port of a removed instance,
    no other instance gets that port, and with it the clients.
    """

    def __init__(
        self,
        run_dir: Path,
        account: Account,
        size: int = SIZE,
        *,
        on_lost: Callable[[list[Running]], None],
        on_trouble: Callable[[Iterable[str]], None],
        mapped: Callable[[], Collection[int]],
    ) -> None:
        self.uid = account.uid
        self._run_dir = run_dir
        self._on_lost = on_lost
        self._mapped = mapped
        self._answers_problem = ""
        self._workers = Workers(
            run_dir,
            account,
            size,
            on_arrival=self._arrived,
            on_loss=self._lost,
            on_trouble=on_trouble,
        )
        self._instances: dict[str, list[Running]] = {}
        self._ports = PortRange(ENGINE_PORTS, f"all {len(ENGINE_PORTS)} engine ports are taken")
        self._undoing: set[asyncio.Task[None]] = set()
        self.rule_sets = RuleSets(run_dir, account.gid)
        """The files that instances may refer to; they must be put there before the instances
        start."""
        self._trials = Trials(run_dir / "trial.sock", account)
        self._quarantine = Quarantine(self._trials)

    # --- Opening and closing. -----------------------------------------------------------------

    async def open(self, instances: int = 0) -> None:
        """Adopt the living workers, and start as many as that number of instances wants.

        A worker that does not come up is retried later; `problems` gives the reason.
        """
        self._run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._run_dir.chmod(0o700)
        self.rule_sets.open()
        self._answers_problem = await asyncio.to_thread(answers.problem, self.uid)
        await self._workers.open(instances)

    async def close(self) -> None:
        """End every worker, and with them every instance."""
        await asyncio.gather(self._trials.close(), self._workers.close())
        self._instances.clear()

    def release(self) -> None:
        """Leave the workers running, for the next netd to adopt."""
        self._trials.release()
        self._workers.release()

    # --- Running instances. -------------------------------------------------------------------

    def running(self) -> Mapping[str, Running]:
        """Return the newest instance of each key."""
        return {key: alike[-1] for key, alike in self._instances.items()}

    def is_running(self, instance: Running) -> bool:
        """Return whether this instance lives."""
        return instance in self._instances.get(instance.key, ())

    def superseded(self) -> list[Running]:
        """Return older instances of keys that have a newer one, to be stopped once no client is
        sent to them. A netd that died between a start and a stop leaves such instances behind.
        """
        return [running for alike in self._instances.values() for running in alike[:-1]]

    def workers(self) -> dict[int, int]:
        """Return the process of each living worker, by its slot, without the trial worker's."""
        return self._workers.pids()

    def pids(self) -> list[int]:
        """Return the workers' processes, the trial worker's last if there is one."""
        trial = self._trials.worker
        trying = [trial.pid] if trial is not None and not trial.ended.done() else []
        return [*self.workers().values(), *trying]

    def problems(self) -> tuple[Sentence, ...]:
        """Return sentences about missing workers, and about restrictions for clients of nodes."""
        missing = self._workers.problems()
        if not self._answers_problem or not (ports := udp_ports.listened_on(but=self.uid)):
            return missing
        in_the_way = say(
            "udp-ports-in-use", ports=tuple(map(str, ports)), reason=self._answers_problem
        )
        return (*missing, in_the_way)

    # --- Starting and stopping. ---------------------------------------------------------------

    async def start(self, document: Document) -> Running:
        """Start a new instance; it listens when this returns. Older ones of its key keep running.

        Raises Failed. In that case, and if the call is cancelled, nothing is left behind.
        """
        work = asyncio.ensure_future(self._start(document))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            work.add_done_callback(self._undo)
            raise

    async def stop(self, running: Running) -> None:
        """Stop an instance. Do nothing if it is already gone."""
        slot = self._workers[running.worker]
        if slot is None or (worker := slot.worker) is None or not slot.drop(running):
            return
        try:
            async with asyncio.timeout(_STOP_S):
                await worker.ask(Stop(running.number))
        except TimeoutError:
            log.warning("engine instance did not stop in time", key=running.key)
        except Lost as lost:
            log.info("engine instance ended with its worker", why=str(lost))
        finally:
            self._forget(running)

    async def _start(self, document: Document) -> Running:
        action = f"start engine instance {document.key}"
        name = document.digest
        try:
            while True:
                await self._quarantine.admit(document, name)
                slot = await self._workers.slot_for(document, action)
                try:
                    async with slot.turn(document.key) as worker:
                        if worker is None:
                            continue  # it did not come up, or went down meanwhile
                        live = await self._start_in(worker, document, name)
                        running = slot.add(live)
                        self._remember(running)
                except Lost as lost:
                    log.error(
                        "engine worker lost while starting an instance",
                        key=document.key,
                        why=str(lost),
                    )
                    await self._quarantine.suspect(document, name)
                else:
                    self._quarantine.clear(name)
                    return running
        except (_Declined, Quarantined, ValueError, LookupError) as error:
            raise Failed(action, str(error)) from error

    async def _start_in(self, worker: WorkerProcess, document: Document, name: str) -> Live:
        """Start it in that worker, on a free port.

        Raises ValueError, LookupError or _Declined if that is impossible, and Lost if the worker
        goes down.
        """
        listeners = Listeners(document.config)
        if not listeners.needs_port:
            port, config = listeners.port, document.config
            return await self._order(worker, document.key, name, port, config)
        for _ in range(_PORT_TRIES):
            port = self._ports.take(self._mapped())
            try:
                return await self._order(worker, document.key, name, port, listeners.on(port))
            except (_Declined, Lost) as error:
                self._ports.give_back(port)
                if not (isinstance(error, _Declined) and error.port_taken):
                    raise
        raise LookupError(f"{_PORT_TRIES} engine ports in a row are taken by other programs")

    async def _order(
        self, worker: WorkerProcess, key: str, name: str, port: int, config: str
    ) -> Live:
        """Make the worker start `config`, which is complete.

        Raises _Declined, and Lost if the worker goes down.
        """
        order = Start(key=key, digest=name, port=port, config=config)
        asked = asyncio.ensure_future(worker.ask(order))
        try:
            await _START.wait_for(asked, partial(of_process, worker.pid))
        except GivenUp as given_up:
            asked.add_done_callback(partial(self._undo_late, worker))
            late = WorkerRefusal(reason=say("start-too-slow", seconds=f"{given_up.waited_s:.0f}"))
            raise _Declined(late) from None
        except asyncio.CancelledError:
            asked.add_done_callback(partial(self._undo_late, worker))
            raise
        answer = asked.result()
        if isinstance(answer, WorkerRefusal):
            raise _Declined(answer)
        assert isinstance(answer, Started)
        if worker.ended.done():
            raise Lost(worker.ended.result())
        return Live(number=answer.number, key=key, digest=name, port=port, started=answer.started)

    def _undo(self, work: asyncio.Future[Running]) -> None:
        """Stop the instance started for a caller that no longer waits."""
        if not work.cancelled() and work.exception() is None:
            self._aside(self.stop(work.result()))

    def _undo_late(self, worker: WorkerProcess, asked: asyncio.Future[AnswerBody]) -> None:
        """Stop an instance that started after its start was given up."""
        if asked.cancelled() or asked.exception() is not None:
            return
        answer = asked.result()
        if isinstance(answer, Started):
            self._aside(worker.ask(Stop(answer.number)))

    def _aside(self, work: Coroutine[None, None, object]) -> None:
        async def attempt() -> None:
            with suppress(Failed, Lost):  # instances that end with their worker have ended, too
                await work

        task = asyncio.ensure_future(attempt())
        self._undoing.add(task)
        task.add_done_callback(self._undoing.discard)

    # --- Bookkeeping. -------------------------------------------------------------------------

    def _arrived(self, slot: Slot) -> None:
        for running in slot.running():
            self._ports.claim(running.port)
            self._remember(running)

    def _lost(self, lost: list[Running]) -> None:
        for running in lost:
            self._forget(running)
        # Not called from here: an error in the callback must not end the supervision.
        asyncio.get_running_loop().call_soon(self._on_lost, lost)

    def _remember(self, running: Running) -> None:
        alike = self._instances.setdefault(running.key, [])
        alike.append(running)
        alike.sort(key=lambda instance: instance.started)

    def _forget(self, running: Running) -> None:
        alike = self._instances[running.key]
        alike.remove(running)
        if not alike:
            del self._instances[running.key]
        self._ports.give_back(running.port)

    # --- Trials. ------------------------------------------------------------------------------

    async def try_configs(self, configs: Sequence[str]) -> list[Sentence]:
        """For each of `configs` return the reason why the engine refuses it; empty if it does not.

        Raises Failed if no trial worker is available.
        """
        return await self._trials.problems(configs)

    async def delays(
        self, probes: Sequence[ProbeDocument], url: str, timeout_ms: int
    ) -> dict[str, Delay]:
        """Measure each probe: see `egressd.netd.engine.delay` for the definition of a delay.

        Raises Invalid if `url` is not an HTTP(S) URL, Failed if there is no trial worker.
        """
        try:
            parse_url(url)
        except ValueError as error:
            raise Invalid(str(error)) from error
        return await self._trials.delays(self._within(probes), url, timeout_ms)

    def ways(self, probes: Sequence[ProbeDocument]) -> AbstractAsyncContextManager[OpenedWays]:
        """Return a context with a SOCKS5 listener for each probe: see `Trials.ways`."""
        return self._trials.ways(self._within(probes))

    def _within(self, probes: Sequence[ProbeDocument]) -> list[ProbeDocument]:
        """Return the probes, led through the tunnels that serve clients now."""
        running = self.running()

        def port_of(key: str) -> int:
            return running[key].port if key in running else 0

        return [
            msgspec.structs.replace(probe, config=batch.within(probe.config, port_of))
            for probe in probes
        ]

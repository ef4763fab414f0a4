"""The engine instances that serve the plan in force."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress

import structlog

from egressd.model.errors import Failed
from egressd.model.instances import Instance
from egressd.model.plan import Change, Plan
from egressd.netd.engine.document import Document
from egressd.netd.engine.pool import Pool
from egressd.netd.engine.reserved import ReservedPorts
from egressd.netd.engine.slot import SERVICES, Running
from egressd.netd.kernel import sockets, sysctl
from egressd.planner.registry import ENGINE_PORTS

log = structlog.get_logger()


class Serving:
    """Which instance serves which key, on which port; and what would not start."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._reserved = ReservedPorts(pool.uid)
        self._running: dict[str, Running] = {}
        self.problems: dict[str, str] = {}
        """Instance key -> why it does not run."""
        self.needed: set[str] = set()
        """Those of the instances on standby that groups send clients to."""
        self.reviving: set[str] = set()
        """Those that are being started beside all else: nobody else is to start them."""

    def reserve(self, plan: Plan) -> None:
        """Keep the ports of the plan from others, before there is a worker."""
        self._reserved.open()
        self._reserve(plan.instances.values())

    def ports(self) -> dict[str, int]:
        """Instance key -> the port that it listens on."""
        return {key: running.port for key, running in self._running.items()}

    def get(self, key: str) -> Running | None:
        """The instance that serves `key`, or None."""
        return self._running.get(key)

    def missing(self, plan: Plan) -> list[Instance]:
        """Instances of the plan that should run and do not."""
        return [
            instance
            for key, instance in plan.instances.items()
            if key not in self._running and not self.is_idle(instance)
        ]

    def is_idle(self, instance: Instance) -> bool:
        """Whether it stands by, and no group sends clients to it."""
        return instance.standby and instance.key not in self.needed

    def spare(self, plan: Plan, living: Collection[str]) -> list[str]:
        """Running instances on standby that no flow may stay with."""
        return [
            key
            for key in self._running
            if key in plan.instances and self.is_idle(plan.instances[key]) and key not in living
        ]

    def to_start(self, change: Change) -> list[Instance]:
        """The instances of a change that no running one serves already, but for those that stand
        by and do not run."""
        return [
            instance
            for key, instance in change.instances.put.items()
            if (
                self._running[key].digest != Document.of(instance).digest
                if key in self._running
                else not instance.standby
            )
        ]

    def adopt(self, plan: Plan) -> None:
        """Take over the living instances that serve the plan as it is."""
        # A netd that died in the middle may have left a newer one, of a plan that did not last, and
        # an earlier version proxy services among the instances of LAN clients.
        self._running = {
            running.key: running
            for running in sorted(self._living(), key=lambda each: each.started)
            if running.key in plan.instances
            and running.digest == Document.of(plan.instances[running.key]).digest
            and (running.worker == SERVICES) == _is_service(running)
        }

    async def make_room(self, wanted: Sequence[Instance]) -> None:
        """Stop who listens on a port that one of `wanted` has to have: its predecessor, mostly."""
        ports = {instance.port for instance in wanted if instance.port}
        if not ports:
            return
        holders = [running for running in self._living() if running.port in ports]
        self.lose(holders)
        await self.end(holders)

    async def start(self, wanted: Sequence[Instance], *, strict: bool) -> dict[str, Running]:
        """Start instances beside those that serve now, and wait until they listen.

        With `strict` all of them start, or Failed is raised and none does. Without, those that
        will not are noted in `problems`.
        """
        # Else a connection of the engine's, or of anybody's, may have a service's port by chance.
        self._reserve(wanted)
        results = await asyncio.gather(
            *(self._pool.start(Document.of(instance)) for instance in wanted),
            return_exceptions=True,
        )
        started = {r.key: r for r in results if isinstance(r, Running)}
        for instance, result in zip(wanted, results, strict=True):
            if isinstance(result, Running):
                self.problems.pop(instance.key, None)
            elif isinstance(result, Failed) and not strict:
                self.problems[instance.key] = str(result)
            else:
                await self.end(started.values())
                self._reserve_as_before(wanted)
                assert isinstance(result, BaseException)
                raise result
        return started

    async def end_services(self, keys: Iterable[str]) -> None:
        """End those of them that are proxy services: to be called while their ports are guarded."""
        found = (self._running.get(key) for key in keys)
        services = [running for running in found if running and _is_service(running)]
        self.lose(services)
        await self.end(services)

    def replace(self, started: dict[str, Running], dropped: Collection[str]) -> list[Running]:
        """Let `started` serve from now on and `dropped` no more: the instances of no more use."""
        touched = {*started, *dropped}
        stale = [self._running.pop(key) for key in touched if key in self._running]
        self._running |= {k: r for k, r in started.items() if self._pool.is_running(r)}
        return stale

    def forget(self, keys: Iterable[str]) -> None:
        """These are not in the plan any more: it does not matter why they do not run."""
        for key in keys:
            self.problems.pop(key, None)
            self._reserved.release(key)

    def _reserve_as_before(self, wanted: Iterable[Instance]) -> None:
        for each in wanted:
            self._reserved.release(each.key)
            if (running := self._running.get(each.key)) is not None and _is_service(running):
                self._reserved.hold(each.key, running.port)

    def _reserve(self, instances: Iterable[Instance]) -> None:
        with_port = [each for each in instances if each.port]
        sysctl.reserve_ports([range(each.port, each.port + 1) for each in with_port])
        for each in with_port:
            self._reserved.hold(each.key, each.port)

    def lose(self, instances: Iterable[Running]) -> None:
        """Forget instances that went down with their worker."""
        for running in instances:
            if self._running.get(running.key) == running:
                del self._running[running.key]

    def leftovers(self) -> list[Running]:
        """Living instances that serve nobody, left by a netd that died in the middle."""
        serving = set(self._running.values())
        return [running for running in self._living() if running not in serving]

    async def end(self, instances: Iterable[Running]) -> None:
        """Stop instances; one that is gone already is no matter.

        A proxy service's connections end with it: one that waits for a password goes on else, and
        so does the relay of an association, which the engine only leaves once it has been used.
        """
        services = set()
        for running in instances:
            with suppress(Failed):
                await self._pool.stop(running)
            if _is_service(running):
                services.add(running.port)
        if services:
            try:
                await asyncio.to_thread(sockets.destroy_callers, services)
            except OSError as error:
                log.warning("could not end connections to proxy services", error=str(error))

    def _living(self) -> list[Running]:
        return [*self._pool.running().values(), *self._pool.superseded()]


def _is_service(running: Running) -> bool:
    """Whether it is a proxy service, on a port that its owner chose."""
    return bool(running.port) and running.port not in ENGINE_PORTS

"""The engine instances that serve the plan in force."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress

import structlog

from egressd.model.errors import Failed
from egressd.model.instances import Instance
from egressd.model.plan import Change, Plan
from egressd.model.wording import Sentence, as_sentence
from egressd.netd.engine.document import Document
from egressd.netd.engine.reserved import ReservedPorts
from egressd.netd.engine.slot import SERVICES, Running
from egressd.netd.kernel import sockets, sysctl
from egressd.netd.ports import EnginePort
from egressd.planner.registry import ENGINE_PORTS

log = structlog.get_logger()


class RunningInstances:
    """The instances that serve keys, with their ports, and the problems of those that would not
    start.
    """

    def __init__(self, engine: EnginePort) -> None:
        self._engine = engine
        self._reserved = ReservedPorts(engine.uid)
        self._running: dict[str, Running] = {}
        self.problems: dict[str, Sentence] = {}
        """Instance key -> the reason why it does not run."""
        self.needed: set[str] = set()
        """Keys of the instances on standby that groups send clients to."""
        self.reviving: set[str] = set()
        """Keys of instances that `Reconciler.revive` is starting: no other task may start them."""

    def reserve(self, plan: Plan) -> None:
        """Reserve the ports of the plan against other programs, before a worker runs."""
        self._reserved.open()
        self._reserve(plan.instances.values())

    def ports(self) -> dict[str, int]:
        """Return the port that each instance listens on, by its key."""
        return {key: running.port for key, running in self._running.items()}

    def get(self, key: str) -> Running | None:
        """Return the instance that serves `key`, or None."""
        return self._running.get(key)

    def missing(self, plan: Plan) -> list[Instance]:
        """Return the instances of the plan that should run and do not."""
        return [
            instance
            for key, instance in plan.instances.items()
            if key not in self._running and not self.is_idle(instance)
        ]

    def is_idle(self, instance: Instance) -> bool:
        """True if the instance is on standby and no group sends clients to it."""
        return instance.standby and instance.key not in self.needed

    def spare(self, plan: Plan, living: Collection[str]) -> list[str]:
        """Return the running instances on standby that no flow may stay with."""
        return [
            key
            for key in self._running
            if key in plan.instances and self.is_idle(plan.instances[key]) and key not in living
        ]

    def to_start(self, change: Change) -> list[Instance]:
        """Return the instances of a change that have no running instance of the same configuration,
        except those on standby that do not run."""
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
        """Take over the living instances that match the plan."""
        # A netd that died during a change may have left a newer instance, of a plan that was not
        # stored. An earlier version may have left proxy services in the workers of LAN clients.
        self._running = {
            running.key: running
            for running in sorted(self._living(), key=lambda each: each.started)
            if running.key in plan.instances
            and running.digest == Document.of(plan.instances[running.key]).digest
            and (running.worker == SERVICES) == _is_service(running)
        }

    async def make_room(self, wanted: Sequence[Instance]) -> None:
        """Stop the instances that listen on a port of one of `wanted`: mostly its predecessor."""
        ports = {instance.port for instance in wanted if instance.port}
        if not ports:
            return
        holders = [running for running in self._living() if running.port in ports]
        self.lose(holders)
        await self.end(holders)

    async def start(self, wanted: Sequence[Instance], *, strict: bool) -> dict[str, Running]:
        """Start instances beside those that serve now, and wait until they listen.

        With `strict`, either all of them start, or Failed is raised and none does. Without
        `strict`, the errors of those that do not start are stored in `problems`.
        """
        # Otherwise a connection of the engine or of another program may use a service's port.
        self._reserve(wanted)
        results = await asyncio.gather(
            *(self._engine.start(Document.of(instance)) for instance in wanted),
            return_exceptions=True,
        )
        started = {r.key: r for r in results if isinstance(r, Running)}
        for instance, result in zip(wanted, results, strict=True):
            if isinstance(result, Running):
                self.problems.pop(instance.key, None)
            elif isinstance(result, Failed) and not strict:
                self.problems[instance.key] = as_sentence(str(result))
            else:
                await self.end(started.values())
                self._reserve_as_before(wanted)
                assert isinstance(result, BaseException)
                raise result
        return started

    async def end_services(self, keys: Iterable[str]) -> None:
        """End the proxy services among `keys`. Call this while their ports are guarded."""
        found = (self._running.get(key) for key in keys)
        services = [running for running in found if running and _is_service(running)]
        self.lose(services)
        await self.end(services)

    def replace(self, started: Mapping[str, Running], dropped: Collection[str]) -> list[Running]:
        """Let `started` serve from now on, and `dropped` no more. Return the unused instances."""
        touched = {*started, *dropped}
        stale = [self._running.pop(key) for key in touched if key in self._running]
        self._running |= {k: r for k, r in started.items() if self._engine.is_running(r)}
        return stale

    def forget(self, keys: Iterable[str]) -> None:
        """Forget the problems and reserved ports of keys that are not in the plan any more."""
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
        """Return living instances that serve no key, left by a netd that died during a change."""
        serving = set(self._running.values())
        return [running for running in self._living() if running not in serving]

    async def end(self, instances: Iterable[Running]) -> None:
        """Stop instances; those already gone are ignored.

        The connections of a proxy service are ended, too. Otherwise a connection that waits for a
        password would stay, and so would the relay of an association, which the engine only leaves
        once it has been used.
        """
        services = set()
        for running in instances:
            with suppress(Failed):
                await self._engine.stop(running)
            if _is_service(running):
                services.add(running.port)
        if services:
            try:
                await asyncio.to_thread(sockets.destroy_callers, services)
            except OSError as error:
                log.warning("cannot end connections to proxy services", error=str(error))

    def _living(self) -> list[Running]:
        return [*self._engine.running().values(), *self._engine.superseded()]


def _is_service(running: Running) -> bool:
    """True if the instance is a proxy service, on a port that its owner chose."""
    return bool(running.port) and running.port not in ENGINE_PORTS

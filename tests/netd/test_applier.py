"""Changes whose engine instances will not start: nobody leaves by another in their place.

The engine, the kernel and the lines are stood in for: what counts is whom clients are sent to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from egressd.model.errors import Failed
from egressd.model.plan import Instance, Plan, difference
from egressd.netd.applier import Applier
from egressd.netd.engine.pool import Pool, digest
from egressd.netd.engine.slot import Running
from egressd.netd.groups import Groups
from egressd.netd.limits import Limits
from egressd.netd.lines.lines import Lines
from egressd.netd.machine import Machine
from egressd.netd.moves import Moves
from egressd.netd.planfile import PlanFile
from egressd.netd.serving import Serving
from egressd.netd.steering import Steering
from egressd.planner.topology import Topology

MARK = 0x1000_0007


class Engine:
    """Starts whatever is not `refused`."""

    def __init__(self) -> None:
        self.refused = ""
        self.alive: dict[int, Running] = {}
        self._next = 20_000

    async def start(self, instance: Instance) -> Running:
        if instance.config == self.refused:
            raise Failed("start it", "it is refused")
        return self.run(instance)

    def run(self, instance: Instance) -> Running:
        self._next += 1
        number = self._next
        self.alive[number] = Running(
            key=instance.key,
            digest=digest(instance),
            port=number,
            worker=1,
            pid=1,
            number=number,
            started=number,
        )
        return self.alive[number]

    async def stop(self, running: Running) -> None:
        del self.alive[running.number]

    def is_running(self, running: Running) -> bool:
        return running.number in self.alive

    def running(self) -> Mapping[str, Running]:
        return {each.key: each for each in self.alive.values()}

    def superseded(self) -> list[Running]:
        newest = self.running()
        return [each for each in self.alive.values() if newest[each.key] != each]


class Kernel:
    """Remembers what it was told last."""

    def __init__(self) -> None:
        self.topology = Topology()
        self.choices: Any = {}
        self.ports: Mapping[str, int] = {}
        self.is_full = False

    def host_script(self, *_: object) -> str:
        return ""

    async def update(self, plan: Plan, ports: Mapping[str, int], hosts: str = "") -> None:
        if self.is_full:
            raise Failed("change nftables", "no memory")
        self.ports = dict(ports)

    async def load(self, plan: Plan, ports: Mapping[str, int]) -> bool:
        await self.update(plan, ports)
        return False

    def doubt(self) -> None:
        pass


class Device:
    def __init__(self, folder: Path) -> None:
        self.engine, self.kernel = Engine(), Kernel()
        pool, machine = cast(Pool, self.engine), cast(Machine, self.kernel)
        self.serving = Serving(pool)

        async def nothing(*_: object, **__: object) -> None:
            pass

        limits = SimpleNamespace(change=nothing, look=nothing)
        self.applier = Applier(
            machine=machine,
            limits=cast(Limits, limits),
            pool=pool,
            lines=cast(Lines, None),
            plan_file=PlanFile(folder / "plan.db"),
            serving=self.serving,
            steering=Steering(
                Groups(folder / "groups.json"),
                machine,
                self.serving,
                pool,
                plan=lambda: self.applier.plan,
                regroup=nothing,
                publish=lambda _: None,
            ),
            moves=Moves(machine, lambda: self.applier.plan),
        )

    async def become(self, *configs: str, strict: bool) -> None:
        """Put in force that nodes 7, 8, … have these configurations."""
        instances = {
            f"node:{n}": Instance(key=f"node:{n}", config=config, mark=MARK + n)
            for n, config in enumerate(configs, 7)
        }
        before = self.applier.plan
        plan = Plan(revision=before.revision + 1, instances=instances)
        await self.applier.carry_out(difference(before, plan), strict=strict)

    def served_by(self) -> dict[str, str]:
        """Node -> the digest of the instance that the kernel sends its clients to."""
        return {key: self.engine.alive[port].digest for key, port in self.kernel.ports.items()}


def digests(**configs: str) -> dict[str, str]:
    keys = {f"node:{name[1:]}": config for name, config in configs.items()}
    return {
        key: digest(Instance(key=key, config=config, mark=MARK + int(key[5:])))
        for key, config in keys.items()
    }


def test_p1_nobody_goes_on_by_a_node_that_is_another_now_and_will_not_start(tmp_path: Path) -> None:
    async def body() -> None:
        device = Device(tmp_path)
        await device.become("a", "b", strict=True)
        assert device.served_by() == digests(n7="a", n8="b")
        device.engine.refused = "c"
        await device.become("c", "b", strict=False)
        assert device.served_by() == digests(n8="b")
        assert len(device.engine.alive) == 1
        assert [instance.key for instance in device.applier.missing()] == ["node:7"]
        assert "it is refused" in device.serving.problems["node:7"]
        await device.become("d", "b", strict=False)
        assert device.served_by() == digests(n7="d", n8="b")
        assert not device.serving.problems

    asyncio.run(body())


def test_a_change_that_is_refused_leaves_everything_as_it_was(tmp_path: Path) -> None:
    async def body() -> None:
        device = Device(tmp_path)
        await device.become("a", "b", strict=True)
        before = device.served_by()
        device.engine.refused = "c"
        with pytest.raises(Failed, match="it is refused"):
            await device.become("c", "d", strict=True)
        device.kernel.is_full = True
        with pytest.raises(Failed, match="no memory"):
            await device.become("e", "d", strict=True)
        device.kernel.is_full = False
        await device.applier.load()
        assert device.served_by() == before
        assert len(device.engine.alive) == 2
        assert not device.applier.missing()

    asyncio.run(body())


def adopted(engine: Engine, instances: Iterable[Instance]) -> set[int]:
    serving = Serving(cast(Pool, engine))
    serving.adopt(Plan(instances={each.key: each for each in instances}))
    return set(serving.ports().values())


def test_p3_what_serves_is_adopted_though_a_newer_one_of_another_plan_runs() -> None:
    engine = Engine()
    before, after = (Instance(key="node:7", config=config, mark=MARK) for config in "ab")
    serves, newer = engine.run(before), engine.run(after)
    assert adopted(engine, [before]) == {serves.port}
    assert adopted(engine, [after]) == {newer.port}

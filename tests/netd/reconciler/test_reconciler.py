"""Changes while the engine refuses, is slow, or loses instances: the instances that clients are
sent to.

The engine, the kernel, limits and lines are stand-ins.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, closing
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from egressd.app.netd_parts import compose
from egressd.model.errors import Failed
from egressd.model.instances import Instance
from egressd.model.nouns import Line
from egressd.model.plan import (
    Change,
    Egress,
    GlobalPolicy,
    Group,
    Limit,
    Patch,
    Plan,
    WhitelistPlan,
    difference,
)
from egressd.netd.dataplane.instances import RunningInstances
from egressd.netd.engine.document import Document
from egressd.netd.engine.listeners import Listeners
from egressd.netd.engine.slot import Running
from egressd.netd.health.groups import Groups
from egressd.netd.reconciler.phase import Phase
from egressd.netd.reconciler.plan_file import PlanFile
from egressd.netd.reconciler.stale_flows import StaleFlows
from egressd.planner.groups import Turn
from egressd.planner.lines.address import Taken
from egressd.planner.nft import HostUpdate
from egressd.planner.registry import MARK_DIRECT
from egressd.planner.topology import Topology
from tests.support.nodes.instances import node_instance, service_instance
from tests.support.stand_ins import (
    UnexpectedEngine,
    UnexpectedKernel,
    UnexpectedLimits,
    UnexpectedLines,
)

MARK = 0x1000_0000
GROUP = 0x1800_0001
NO_HOSTS: Final = HostUpdate()


@pytest.fixture(autouse=True)
def _no_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("egressd.netd.kernel.conntrack.delete_stale", lambda *_: None)
    monkeypatch.setattr("egressd.netd.kernel.sockets.destroy_callers", lambda _: None)


async def nothing(*_: object, **__: object) -> None:
    pass


class RuleSetStandIn:
    """No rule set is needed."""

    def put(self, contents: Mapping[str, bytes]) -> None:
        assert not contents

    def keep(self, names: Collection[str]) -> None:
        assert not names


class Engine(UnexpectedEngine):
    """Starts every document except `refused`, once `gate` is open."""

    uid = 0

    def __init__(self) -> None:
        self.rule_sets = RuleSetStandIn()
        self.on_close: Callable[[], Awaitable[None]] = nothing
        self.refused = ""
        self.gate = asyncio.Event()
        self.gate.set()
        self.starts: Counter[str] = Counter()
        self.alive: dict[int, Running] = {}
        self._next = 20_000

    async def start(self, document: Document) -> Running:
        self.starts[document.key] += 1
        await self.gate.wait()
        if self.refused and f'"{self.refused}"' in document.config:
            raise Failed("start it", "it is refused")
        return self.run(document)

    def run(self, document: Document) -> Running:
        self._next += 1
        number = Listeners(document.config).port or self._next
        self.alive[number] = Running(
            key=document.key,
            digest=document.digest,
            port=number,
            worker=1,
            pid=1,
            number=number,
            started=self._next,
        )
        return self.alive[number]

    async def stop(self, running: Running) -> None:
        self.alive.pop(running.number, None)

    def is_running(self, running: Running) -> bool:
        return running.number in self.alive

    def workers(self) -> dict[int, int]:
        return {}

    def running(self) -> Mapping[str, Running]:
        return {each.key: each for each in self.alive.values()}

    def superseded(self) -> list[Running]:
        newest = self.running()
        return [each for each in self.alive.values() if newest[each.key] != each]

    async def close(self) -> None:
        await self.on_close()

    def release(self) -> None:
        pass


class Limits(UnexpectedLimits):
    """Accepts every limit."""

    async def refresh(self, limits: Mapping[str, Limit], topology: Topology) -> bool:
        return False

    async def change(
        self, patch: Patch[Limit], limits: Mapping[str, Limit], topology: Topology, *, strict: bool
    ) -> None:
        pass

    def close(self) -> None:
        pass


class Lines(UnexpectedLines):
    """No line is planned."""

    def __init__(self) -> None:
        self.on_close: Callable[[], Awaitable[None]] = nothing

    def outdated(self, wanted: Mapping[str, Line]) -> Mapping[str, Line | None]:
        assert not wanted
        return {}

    def servers(self) -> frozenset[IPv4Address]:
        return frozenset()

    def reserve(self, taken: Taken) -> None:
        pass

    async def close(self) -> None:
        await self.on_close()

    async def release(self) -> None:
        pass


class Kernel(UnexpectedKernel):
    """Records the last calls."""

    def __init__(self) -> None:
        super().__init__()
        self.ports: Mapping[str, int] = {}
        self.is_full = False
        self.on_update: Callable[[], object] = lambda: None

    def host_update(self, plan: Plan, change: Change) -> HostUpdate:
        return HostUpdate()

    def route(self, plan: Plan, egresses: Mapping[str, Egress]) -> None:
        pass

    def served(self) -> set[int]:
        return {MARK + int(key.partition(":")[2]) for key in self.ports}

    async def update(
        self, plan: Plan, ports: Mapping[str, int], hosts: HostUpdate = NO_HOSTS
    ) -> None:
        if self.is_full:
            raise Failed("change nftables", "no memory")
        self.on_update()
        self.ports = dict(ports)

    async def load(self, plan: Plan, ports: Mapping[str, int]) -> None:
        await self.update(plan, ports)

    async def move(self, plan: Plan, ports: Mapping[str, int], hosts: HostUpdate) -> None:
        await self.update(plan, ports, hosts)

    def prepare(self, plan: Plan, clients: Collection[str], *, has_networks: bool) -> None:
        pass

    def invalidate(self) -> None:
        pass

    def is_about_local_clients(self, change: Change) -> bool:
        return False

    async def restrict_to_lan(self, ports: Iterable[int]) -> None:
        self.lan_only = list(ports)


def node(number: int, name: str, *, standby: bool = False) -> Instance:
    """Return an instance whose server has that name."""
    return node_instance(number, name, standby=standby)


def group(*members: Instance) -> Group:
    keys = tuple(each.key for each in members)
    return Group(mark=GROUP, members=keys, strategy="fallback", url="", interval_s=30)


def service(port: int) -> Instance:
    return service_instance(port, username=f"at {port}", password="p")


class Device:
    def __init__(self, folder: Path) -> None:
        self.engine, self.kernel, self.lines = Engine(), Kernel(), Lines()
        self.plan_file = PlanFile(folder / "plan.db")
        self.groups = Groups(folder / "groups.json")
        self.reconciler = compose(
            kernel=self.kernel,
            limits=Limits(),
            engine=self.engine,
            lines=self.lines,
            plan_file=self.plan_file,
            groups=self.groups,
            publish=lambda _: None,
        )

    def plan(self, *nodes: Instance, **more: Any) -> Plan:
        revision = self.reconciler.plan.revision + 1
        return Plan(revision=revision, instances={each.key: each for each in nodes}, **more)

    async def apply(self, *nodes: Instance) -> None:
        """Apply a change that has to succeed."""
        await self.reconciler.apply(difference(self.reconciler.plan, self.plan(*nodes)))

    def served_by(self) -> dict[str, str]:
        """Return node -> the digest of the instance that the kernel sends its clients to."""
        return {key: self.engine.alive[port].digest for key, port in self.kernel.ports.items()}

    def lose(self, *numbers: int) -> list[Instance]:
        """End the nodes' instances with their worker; return the plan's instances of them."""
        keys = {f"node:{number}" for number in numbers}
        lost = [running for running in self.engine.alive.values() if running.key in keys]
        for running in lost:
            del self.engine.alive[running.number]
        self.reconciler.instances.lose(lost)
        return [self.reconciler.plan.instances[key] for key in sorted(keys)]


def digests(*nodes: Instance) -> dict[str, str]:
    return {each.key: Document.of(each).digest for each in nodes}


@asynccontextmanager
async def living(folder: Path) -> AsyncIterator[Device]:
    """Yield a device. In the end it has no instance beside those that the reconciler knows."""
    device = Device(folder)
    with closing(device.plan_file):
        async with asyncio.timeout(10):
            yield device
        assert {running.port for running in device.engine.alive.values()} == set(
            device.reconciler.instances.ports().values()
        )
        await device.reconciler.release()


async def test_the_phase_is_that_of_the_plan_in_force_until_the_end(tmp_path: Path) -> None:
    async with living(tmp_path) as device:
        reconciler, phases = device.reconciler, []
        phases.append(reconciler.phase)
        for policy in (GlobalPolicy(), GlobalPolicy(opened=True), GlobalPolicy(stopped=True)):
            await reconciler.set_plan(device.plan(policy=policy))
            phases.append(reconciler.phase)
        await reconciler.release()
        phases.append(reconciler.phase)
        order = (Phase.GUARDED, Phase.RUNNING, Phase.OPENED, Phase.STOPPED, Phase.ENDING)
        assert tuple(phases) == order
        reported = [phase.reported for phase in order[:-1]]
        assert reported == ["restoring", "running", "running", "stopped"]


async def test_p1_clients_are_blocked_if_their_edited_node_does_not_start(tmp_path: Path) -> None:
    """Past fault: if an edited node did not start, its clients continued through the old instance
    and nothing was reported. They are blocked, and the start is tried again.
    """

    async with living(tmp_path) as device:
        a, b, c, d = node(7, "a"), node(8, "b"), node(7, "c"), node(7, "d")
        await device.reconciler.set_plan(device.plan(a, b))
        assert device.served_by() == digests(a, b)
        device.engine.refused = "c"
        await device.reconciler.set_plan(device.plan(c, b))
        assert device.served_by() == digests(b)
        assert "it is refused" in device.reconciler.instances.problems["node:7"]
        await device.reconciler.set_plan(device.plan(d, b))
        assert device.served_by() == digests(d, b)
        assert not device.reconciler.instances.problems


async def test_a_change_that_is_not_strict_blocks_one_instance_alone(tmp_path: Path) -> None:
    async with living(tmp_path) as device:
        plan = device.plan(node(7, "c"), node(8, "b"))
        device.engine.refused = "c"
        change = difference(device.reconciler.plan, plan)
        with pytest.raises(Failed, match="it is refused"):
            await device.reconciler.apply(change)
        await device.reconciler.apply(change, is_strict=False)
        assert set(device.served_by()) == {"node:8"}
        assert "it is refused" in device.reconciler.instances.problems["node:7"]
        assert device.reconciler.plan.revision == plan.revision


async def test_a_refused_change_leaves_everything_unchanged(tmp_path: Path) -> None:
    async with living(tmp_path) as device:
        a, b = node(7, "a"), node(8, "b")
        await device.apply(a, b)
        device.engine.refused = "c"
        with pytest.raises(Failed, match="it is refused"):
            await device.apply(node(7, "c"), node(8, "d"))
        device.kernel.is_full = True
        with pytest.raises(Failed, match="no memory"):
            await device.apply(node(7, "e"), node(8, "d"))
        device.kernel.is_full = False
        await device.reconciler.revive([])
        assert device.served_by() == digests(a, b)


@pytest.mark.parametrize(
    ("parts", "rules_changed"),
    [
        ({"hosts": {"10.0.0.1": MARK_DIRECT}}, False),
        ({"nets": {"10.0.1.0-10.0.1.255": MARK_DIRECT}}, True),
        ({"whitelist": WhitelistPlan(mark=MARK_DIRECT)}, True),
        ({"policy": GlobalPolicy(unmanaged=MARK_DIRECT)}, True),
        ({"groups": {"group:1": group(node(7, "a"))}}, True),
    ],
)
async def test_stale_flow_deletion_stops_before_the_kernels_rules_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], rules_changed: bool
) -> None:
    """Past fault: the clean-up after a save judged flows by the plan that it had begun with."""

    async with living(tmp_path) as device:
        await device.reconciler.set_plan(device.plan(node(7, "a")))
        steps: list[str] = []
        monkeypatch.setattr(StaleFlows, "invalidate", lambda _: steps.append("outdated"))
        device.kernel.on_update = lambda: steps.append("kernel")
        plan = device.plan(node(7, "a"), **parts)
        await device.reconciler.apply(difference(device.reconciler.plan, plan))
        assert steps == (["outdated"] if rules_changed else []) + ["kernel"]


async def test_p1_a_proxy_service_ends_before_its_port_is_no_longer_guarded(tmp_path: Path) -> None:
    """Past fault: a proxy service without a password that was deleted or moved was open to all
    callers for milliseconds, because its port lost its guard before the service ended.
    """

    async with living(tmp_path) as device:
        a, px = node(7, "a"), service(1080)
        await device.apply(a, px)
        heard: list[set[int]] = []
        device.kernel.on_update = lambda: heard.append(
            {running.port for running in device.engine.alive.values()}
        )
        moved = service(1081)
        await device.apply(a, moved)
        assert [1080 in ports for ports in heard] == [False]
        assert device.served_by() == digests(a, moved)
        await device.apply(a)
        assert [1081 in ports for ports in heard] == [True, False]
        await device.apply(a, px)
        device.kernel.is_full = True
        with pytest.raises(Failed, match="no memory"):
            await device.apply(a)
        device.kernel.is_full = False
        await device.reconciler.revive([])
        assert device.served_by() == digests(a, px)


def kept(folder: Path) -> dict[str, str]:
    """Return the members of clients that a later netd will know."""
    later = Groups(folder / "groups.json")
    later.load()
    return later.choices["group:1"].kept


async def test_clients_keep_their_members_if_netd_ends_at_once(tmp_path: Path) -> None:
    """Past fault: a netd that ended within half a second of a change or a rotation did not store
    its choices, and the next one sent clients elsewhere: rotated ones back to their former members.
    """
    a, b = node(7, "a"), node(8, "b")
    sticky = msgspec.structs.replace(group(a, b), strategy="sticky")
    hosts = {f"10.0.0.{number}": GROUP for number in range(1, 5)}
    async with living(tmp_path) as device:
        await device.reconciler.set_plan(device.plan(a, b, groups={"group:1": sticky}, hosts=hosts))
        moved = await device.reconciler.rotate({"group:1": Turn()})
        assert moved["group:1"].keys() == hosts.keys()
        assert kept(tmp_path) == moved["group:1"]
        hosts["10.0.0.5"] = GROUP
        await device.reconciler.set_plan(device.plan(a, b, groups={"group:1": sticky}, hosts=hosts))
        assert device.groups.choices["group:1"].kept.keys() == hosts.keys()
    assert kept(tmp_path) == device.groups.choices["group:1"].kept


async def test_p5_a_halt_ends_proxy_services(tmp_path: Path) -> None:
    """Past fault: proxy services continued while the database could not be read."""

    async with living(tmp_path) as device:
        a, px = node(7, "a"), service(1080)
        await device.apply(a, px)
        await device.reconciler.halt("the database is bad")
        assert device.reconciler.plan.policy.stopped
        assert device.served_by() == digests(a)


async def test_p1_a_halt_ends_a_proxy_service_that_is_being_restarted(tmp_path: Path) -> None:
    async with living(tmp_path) as device:
        a, px = node(7, "a"), service(1080)
        await device.apply(a, px)
        (running,) = (each for each in device.engine.alive.values() if each.port == 1080)
        await device.engine.stop(running)
        device.reconciler.instances.lose([running])
        device.engine.gate.clear()
        revival = asyncio.create_task(device.reconciler.revive([px]))
        await asyncio.sleep(0)
        await device.reconciler.halt("the database is bad")
        assert device.kernel.lan_only == [1080]
        device.engine.gate.set()
        await revival
        assert device.served_by() == digests(a)


async def test_the_device_starts_although_a_proxy_service_does_not(tmp_path: Path) -> None:
    async with living(tmp_path) as device:
        a, px = node(7, "a"), service(1080)
        await device.reconciler.set_plan(device.plan(a, policy=GlobalPolicy(stopped=True)))
        device.engine.refused = "at 1080"
        wanted = device.plan(a, px, policy=GlobalPolicy())
        await device.reconciler.apply(difference(device.reconciler.plan, wanted))
        assert not device.reconciler.plan.policy.stopped
        assert "it is refused" in device.reconciler.instances.problems["service:1"]
        assert device.served_by() == digests(a)


async def test_p1_no_change_follows_a_stop(tmp_path: Path) -> None:
    """A change that waits for an instance that is being revived must not let any client out again.
    Past fault: such a change had its turn after the table that blocks was loaded.
    """

    device = Device(tmp_path)
    await device.apply(node(7, "a"))
    lost = device.lose(7)
    device.engine.gate.clear()
    revival = asyncio.create_task(device.reconciler.revive(lost))
    await asyncio.sleep(0)
    change = asyncio.create_task(device.apply(node(7, "b")))
    await asyncio.sleep(0)

    async def close() -> None:
        device.engine.gate.set()
        with pytest.raises(Failed, match="netd is ending"):
            await revival
        with pytest.raises(Failed, match="netd is ending"):
            await change

    device.lines.on_close = device.engine.on_close = close
    await device.reconciler.stop()
    assert device.kernel.ports == {}


async def test_p3_other_changes_do_not_wait_for_the_restart_of_an_instance(tmp_path: Path) -> None:
    async with living(tmp_path) as device:
        a, b = node(7, "a"), node(8, "b")
        await device.apply(a, b)
        lost = device.lose(7)
        device.engine.gate.clear()
        revival = asyncio.create_task(device.reconciler.revive(lost))
        await asyncio.sleep(0)
        await device.reconciler.apply(
            difference(device.reconciler.plan, device.plan(a, b, delay_url="http://site.test/"))
        )
        assert not revival.done()
        device.engine.gate.set()
        await revival
        assert device.served_by() == digests(a, b)
        assert device.engine.starts["node:7"] == 2


@pytest.mark.parametrize("after", [(), ("c",)])
async def test_a_change_of_a_restarting_instance_waits_for_the_restart(
    tmp_path: Path, after: Iterable[str]
) -> None:
    """A deleted instance, for example a proxy service, must not come up after the deletion was
    answered.
    """

    async with living(tmp_path) as device:
        b = node(8, "b")
        await device.apply(node(7, "a"), b)
        lost = device.lose(7)
        device.engine.gate.clear()
        revival = asyncio.create_task(device.reconciler.revive(lost))
        await asyncio.sleep(0)
        wanted = [*(node(7, name) for name in after), b]
        change = asyncio.create_task(device.apply(*wanted))
        await asyncio.sleep(0.05)
        assert not change.done()
        device.engine.gate.set()
        await asyncio.gather(revival, change)
        assert device.served_by() == digests(*wanted)


async def test_a_restarted_instance_is_kept_if_the_kernel_update_fails(tmp_path: Path) -> None:
    async with living(tmp_path) as device:
        a = node(7, "a")
        await device.apply(a)
        device.kernel.is_full = True
        with pytest.raises(Failed, match="no memory"):
            await device.reconciler.revive(device.lose(7))
        device.kernel.is_full = False
        await device.reconciler.revive([])
        assert device.served_by() == digests(a)
        await device.apply(node(7, "b"))  # it does not wait


async def test_a_groups_node_that_is_restarting_is_not_started_twice(tmp_path: Path) -> None:
    async with living(tmp_path) as device:
        a, b = node(7, "a", standby=True), node(8, "b", standby=True)
        groups = {"group:1": group(a, b)}
        await device.reconciler.set_plan(device.plan(a, b, groups=groups))
        assert device.served_by() == digests(a)
        lost = device.lose(7)
        device.engine.gate.clear()
        revival = asyncio.create_task(device.reconciler.revive(lost))
        await asyncio.sleep(0)
        await device.reconciler.apply(
            difference(
                device.reconciler.plan,
                device.plan(a, b, groups=groups, delay_url="http://site.test/"),
            )
        )
        device.engine.gate.set()
        await revival
        assert device.served_by() == digests(a)
        assert device.engine.starts == {"node:7": 2}


async def test_a_group_forgets_the_results_of_the_check_that_it_had(tmp_path: Path) -> None:
    """Past fault: a member that was dead by an earlier URL of its group got no clients when the
    group had that URL again, however long ago the check was.
    """
    first, other = "http://first.test/", "http://other.test/"
    async with living(tmp_path) as device:
        a, b = node(7, "a", standby=True), node(8, "b", standby=True)
        for url in (first, other, first):
            its = msgspec.structs.replace(group(a, b), url=url)
            await device.reconciler.set_plan(device.plan(a, b, groups={"group:1": its}))
            assert device.groups.delays_of(its) == {}
            device.groups.note(url, {a.key: -1, b.key: 9})


def adopted(engine: Engine, instance: Instance) -> set[int]:
    serving = RunningInstances(engine)
    serving.adopt(Plan(instances={instance.key: instance}))
    return set(serving.ports().values())


def test_p3_the_plans_instance_is_adopted_despite_a_newer_one() -> None:
    """Past fault: after netd died in the middle of an edit of a node, the next netd cut that node's
    connections, because it adopted the newest instance instead of its plan's.
    """
    engine = Engine()
    before, after = node(7, "a"), node(7, "b")
    serves, newer = engine.run(Document.of(before)), engine.run(Document.of(after))
    assert adopted(engine, before) == {serves.port}
    assert adopted(engine, after) == {newer.port}


async def test_p1_a_stop_that_failed_to_block_raises_after_all_else_ended(tmp_path: Path) -> None:
    """Past fault: a stop counted as done although the kernel had refused the table that blocks.
    netd ends with an error, and its keeper blocks.
    """

    device = Device(tmp_path)
    await device.apply(node(7, "a"))
    ended = []

    async def close() -> None:
        ended.append(True)

    device.lines.on_close = device.engine.on_close = close
    device.kernel.is_full = True
    with pytest.raises(Failed, match="no memory"):
        await device.reconciler.stop()
    assert len(ended) == 2

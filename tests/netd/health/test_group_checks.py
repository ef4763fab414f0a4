"""The checks of group members: their frequency and timing, and the repetition before a node counts
as dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from egressd.model.errors import Failed
from egressd.model.messages import Delay
from egressd.model.plan import Change, Group, Patch, Plan
from egressd.model.wording import as_sentence
from egressd.netd.engine.protocol import ProbeDocument
from egressd.netd.health.group_checks import GroupChecks
from egressd.netd.health.groups import Groups
from egressd.planner.groups import DEAD, Choice
from tests.netd.clockless import CLOCKLESS, until
from tests.support.loops import Backend
from tests.support.nodes.instances import node_instance

KEYS = ("node:1", "node:2", "node:3")
INTERVAL_S = 1


def plan_of(keys: Sequence[str] = KEYS) -> Plan:
    return Plan(
        instances={key: node_instance(int(key[5:])) for key in keys},
        groups={
            "group:1": Group(
                mark=0x1800_0001,
                members=tuple(keys),
                strategy="fallback",
                url="http://site.test/",
                interval_s=INTERVAL_S,
            )
        }
        if keys
        else {},
    )


class Network:
    """Nodes, some of which are dead or silent, and a record of the checks."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.dead: set[str] = set()
        self.dead_once: set[str] = set()
        self.silent: set[str] = set()
        self.failure: Exception | None = None
        self.asked: list[tuple[float, tuple[str, ...]]] = []
        self.begun = asyncio.get_running_loop().time()

    async def delays(
        self, probes: Sequence[ProbeDocument], url: str, timeout_ms: int
    ) -> dict[str, Delay]:
        now = asyncio.get_running_loop().time() - self.begun
        assert url == "http://site.test/"
        assert timeout_ms == INTERVAL_S * 1000 // 6
        if self.failure is not None:
            raise self.failure
        names = tuple(sorted(probe.name for probe in probes))
        self.asked.append((now, names))
        if self.silent.intersection(names):
            await asyncio.sleep(timeout_ms / 1000)
        lost = self.dead | self.silent | self.dead_once
        self.dead_once = set()
        return {
            n: Delay(delay=-1, error=as_sentence("no")) if n in lost else Delay(delay=9)
            for n in names
        }


@pytest.fixture
def anyio_backend() -> Backend:
    """Return an event loop whose time passes at once."""
    return CLOCKLESS


@asynccontextmanager
async def checked(keys: Sequence[str]) -> AsyncIterator[tuple[Network, Groups, GroupChecks]]:
    """Yield a network with a group of `keys`, whose nodes are checked."""
    network = Network(plan_of(keys))
    groups = Groups(Path("/nonexistent/groups.json"))

    async def changed() -> None:
        change = Change(base=0, revision=0)
        groups.choices = groups.decide(network.plan, change)

    await changed()
    health = GroupChecks(network, groups, lambda: network.plan, changed)
    health.start()
    try:
        yield network, groups, health
    finally:
        await health.close()


async def test_members_are_checked_once_an_interval_and_serving_ones_twice() -> None:
    async with checked(KEYS) as (network, groups, _):
        await asyncio.sleep(1.8 * INTERVAL_S)
        names = [names for _, names in network.asked]
        assert names.count(("node:1",)) == 4
        assert names.count(("node:2", "node:3")) == 2
        assert groups.delays == dict.fromkeys(KEYS, 9)


async def test_a_silent_node_is_replaced_within_the_interval_after_retries() -> None:
    async with checked(KEYS) as (network, groups, _):
        await until(lambda: len(network.asked) == 2, 1)
        await asyncio.sleep(0.01)
        network.silent = {"node:1"}  # the worst moment: it has just answered
        took = await until(lambda: groups.choices["group:1"].elected == "node:2", 2)
        assert took < INTERVAL_S
        asked_alone = [names for _, names in network.asked if names == ("node:1",)]
        assert len(asked_alone) == 3


async def test_a_single_failure_does_not_replace_a_node() -> None:
    async with checked(KEYS) as (network, groups, _):
        await until(lambda: len(network.asked) == 2, 1)
        network.dead_once = {"node:1"}
        await until(lambda: len(network.asked) == 4, 1)
        await asyncio.sleep(0.05)
        assert groups.choices["group:1"].elected == "node:1"


async def test_a_suspect_is_checked_at_once_and_then_all_members() -> None:
    async with checked(KEYS) as (network, groups, health):
        await until(lambda: len(network.asked) == 2, 1)
        network.dead = {"node:1", "node:2"}
        health.suspect(["node:1", "node:9"])
        assert await until(lambda: groups.choices["group:1"].elected == "node:3", 1) < 0.1
        assert network.asked[2][1] == network.asked[3][1] == ("node:1",)
        assert network.asked[4][1] == KEYS


async def test_a_suspect_that_answers_is_not_checked_repeatedly() -> None:
    async with checked(KEYS) as (network, _, health):
        await until(lambda: len(network.asked) == 2, 1)
        for _ in range(20):
            health.suspect(["node:1"])
            await asyncio.sleep(0.01)
        assert len(network.asked) == 3


@pytest.mark.parametrize("failure", [Failed("start it", "it is away"), RuntimeError("no thread")])
async def test_a_missing_engine_makes_no_node_dead(failure: Exception) -> None:
    """Past fault: one unforeseen exception ended all measurements, and groups kept a dead node for
    good.
    """

    async with checked(KEYS) as (network, groups, health):
        await until(lambda: len(network.asked) == 2, 1)
        network.failure = failure
        health.refresh()
        await asyncio.sleep(0.05)
        assert DEAD not in groups.delays.values()
        network.failure = None
        network.dead = {"node:1"}
        await until(lambda: groups.choices["group:1"].elected == "node:2", 2)


async def test_groups_that_are_added_later_are_checked() -> None:
    async with checked(()) as (network, _, health):
        await asyncio.sleep(0.05)
        assert network.asked == []
        network.plan = plan_of()
        health.refresh()
        await until(lambda: len(network.asked) == 1, 1)
        assert network.asked[0][1] == KEYS


def test_an_edited_node_has_no_known_delay(tmp_path: Path) -> None:
    groups = Groups(tmp_path / "groups.json")
    groups.delays = {"node:1": DEAD, "node:2": DEAD, "node:3": 9}
    plan = plan_of()
    anew = node_instance(1, "192.0.2.9")
    patch = Patch(put={"node:1": anew, "node:3": plan.instances["node:3"]}, drop=("node:2",))
    groups.forget(Change(base=0, revision=1, instances=patch), plan)
    assert groups.delays == {"node:3": 9}


def test_choices_survive_a_restart_of_netd(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    groups = Groups(path)
    groups.load()
    assert groups.choices == {}
    groups.choices = {"group:1": Choice(living=KEYS, kept={"10.0.0.1": "node:2"})}
    groups.save()
    assert path.stat().st_mode & 0o777 == 0o600
    later = Groups(path)
    later.load()
    assert later.choices["group:1"].kept == {"10.0.0.1": "node:2"}
    path.write_text("{")
    damaged = Groups(path)
    damaged.load()
    assert damaged.choices == {}


def sticky(hosts: dict[str, int]) -> Plan:
    plan = plan_of()
    group = msgspec.structs.replace(plan.groups["group:1"], strategy="sticky")
    return msgspec.structs.replace(plan, groups={"group:1": group}, hosts=hosts)


def test_added_and_deleted_clients_are_noticed_whatever_the_choices(tmp_path: Path) -> None:
    mark, other = 0x1800_0001, 0x3000_0000
    groups = Groups(tmp_path / "groups.json")
    plan = sticky({"10.0.0.1": mark})

    def after(hosts: Patch[int] = Patch()) -> set[str]:  # noqa: B008 - it is immutable
        change = Change(base=plan.revision, revision=plan.revision + 1, hosts=hosts)
        groups.choices = groups.decide(plan, change)
        plan.apply(change)
        return set(groups.choices["group:1"].kept)

    assert after() == {"10.0.0.1"}
    assert after(Patch(put={"10.0.0.2": other})) == {"10.0.0.1"}
    assert after(Patch(put={"10.0.0.2": mark})) == {"10.0.0.1", "10.0.0.2"}
    assert after(Patch(put={"10.0.0.1": other})) == {"10.0.0.2"}
    assert after(Patch(drop=("10.0.0.2",))) == set()
    plan.hosts["10.0.0.3"] = mark  # as if netd had died before it stored its choice
    groups.save()
    groups.load()
    assert after() == {"10.0.0.3"}


def test_another_strategy_makes_a_new_choice(tmp_path: Path) -> None:
    groups = Groups(tmp_path / "groups.json")
    plan = sticky({"10.0.0.1": 0x1800_0001})
    nothing = Change(base=0, revision=0)
    fallback = msgspec.structs.replace(plan.groups["group:1"], strategy="fallback")
    groups.choices = groups.decide(plan, nothing)
    groups.choices = groups.decide(
        plan, msgspec.structs.replace(nothing, groups=Patch(put={"group:1": fallback}))
    )
    assert groups.choices["group:1"].elected == "node:1"
    assert not groups.choices["group:1"].kept
    groups.choices = groups.decide(plan, nothing)
    assert groups.choices["group:1"].kept == {"10.0.0.1": "node:1"}


def test_a_dead_node_outside_its_group_is_not_reported(tmp_path: Path) -> None:
    groups = Groups(tmp_path / "groups.json")
    groups.delays = {"node:1": DEAD, "node:2": DEAD, "node:3": 9}
    assert groups.dead(plan_of()) == ["node:1", "node:2"]
    assert groups.dead(plan_of(KEYS[1:])) == ["node:2"]
    assert groups.dead(Plan(instances=plan_of().instances)) == []
    assert groups.measured(plan_of()) == {"node:3": 9}
    assert groups.measured(Plan(instances=plan_of().instances)) == {}


def test_the_elected_node_is_reported_for_groups_of_the_plan(tmp_path: Path) -> None:
    groups = Groups(tmp_path / "groups.json")
    groups.choices = {"group:1": Choice(elected="node:2"), "group:2": Choice(elected="node:9")}
    assert groups.elected(plan_of()) == {"group:1": "node:2"}
    groups.choices = {"group:1": Choice(kept={"10.0.0.1": "node:2"})}
    assert groups.elected(plan_of()) == {"group:1": ""}

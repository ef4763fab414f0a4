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

from egressd.model.delays import Delay
from egressd.model.errors import Failed
from egressd.model.nouns import GROUP_STRATEGIES, GroupStrategy
from egressd.model.plan import Change, Egress, Group, Patch, Plan
from egressd.model.wording import as_sentence
from egressd.netd.engine.protocol import ProbeDocument
from egressd.netd.health.group_checks import GroupChecks
from egressd.netd.health.groups import DRAIN_S, Groups
from egressd.planner.groups import DEAD, Choice
from egressd.planner.registry import egress_mark
from tests.netd.clockless import CLOCKLESS, until
from tests.support.loops import Backend
from tests.support.nodes.instances import node_instance

KEYS = ("node:1", "node:2", "node:3")
INTERVAL_S = 1
URL = "http://site.test/"
OTHER_URL = "http://other.test/"


def plan_of(keys: Sequence[str] = KEYS) -> Plan:
    return Plan(
        instances={key: node_instance(int(key[5:])) for key in keys},
        groups={
            "group:1": Group(
                mark=0x1800_0001,
                members=tuple(keys),
                strategy="fallback",
                url=URL,
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
        self.documents: dict[str, str] = {}
        self.begun = asyncio.get_running_loop().time()

    async def delays(
        self, probes: Sequence[ProbeDocument], url: str, timeout_ms: int
    ) -> dict[str, Delay]:
        now = asyncio.get_running_loop().time() - self.begun
        assert url == self.plan.groups["group:1"].url
        assert timeout_ms == INTERVAL_S * 1000 // 6
        if self.failure is not None:
            raise self.failure
        names = tuple(sorted(probe.name for probe in probes))
        self.documents |= {probe.name: probe.config for probe in probes}
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
        assert groups.measured(network.plan) == dict.fromkeys(KEYS, 9)


async def test_a_silent_node_is_replaced_within_the_interval_after_retries() -> None:
    async with checked(KEYS) as (network, groups, _):
        await until(lambda: len(network.asked) == 2, 1)
        await asyncio.sleep(0.01)
        network.silent = {"node:1"}  # the worst moment: it has just answered
        took = await until(lambda: groups.choices["group:1"].elected == "node:2", 2)
        assert took < INTERVAL_S
        asked_alone = [names for _, names in network.asked if names == ("node:1",)]
        assert len(asked_alone) == 2
        assert network.asked[3][1] == KEYS, "it and those that may follow"


async def test_a_single_failure_does_not_replace_a_node() -> None:
    async with checked(KEYS) as (network, groups, _):
        await until(lambda: len(network.asked) == 2, 1)
        network.dead_once = {"node:1"}
        await until(lambda: len(network.asked) == 4, 1)
        await asyncio.sleep(0.05)
        assert groups.choices["group:1"].elected == "node:1"


@pytest.mark.parametrize("count", [3, 150])
@pytest.mark.parametrize("strategy", GROUP_STRATEGIES)
async def test_no_client_moves_while_all_checks_fail_or_right_after(
    strategy: GroupStrategy, count: int
) -> None:
    """Past faults: clients moved to a member that was about to be found dead, too, and after the
    outage to the one that was checked first; of a large group to one that was not checked yet.
    """
    keys = tuple(f"node:{number}" for number in range(1, count + 1))
    async with checked(keys) as (network, groups, _):
        group = msgspec.structs.replace(network.plan.groups["group:1"], strategy=strategy)
        network.plan.groups["group:1"] = group
        network.plan.hosts |= {f"10.0.0.{number}": group.mark for number in (1, 2)}
        network.dead = {"node:1"}
        await asyncio.sleep(2 * INTERVAL_S)
        before = groups.choices["group:1"]
        assert before.serving() <= {*keys} - network.dead
        for offset in range(8):
            network.dead = {*keys}
            await asyncio.sleep((3 + offset / 8) * INTERVAL_S)
            during = groups.choices["group:1"]
            assert (during.elected, during.kept) == (before.elected, before.kept)
            network.dead = {"node:1"}
            await asyncio.sleep((5 + offset / 8) * INTERVAL_S)
            assert groups.choices["group:1"] == before


async def test_a_suspect_is_checked_at_once_and_then_all_members() -> None:
    async with checked(KEYS) as (network, groups, health):
        await until(lambda: len(network.asked) == 2, 1)
        network.dead = {"node:1", "node:2"}
        health.suspect(["node:1", "node:9"])
        assert await until(lambda: groups.choices["group:1"].elected == "node:3", 1) < 0.1
        assert network.asked[2][1] == ("node:1",)
        assert network.asked[3][1] == network.asked[4][1] == KEYS


async def test_a_suspect_moves_no_client_of_a_group_that_was_dead() -> None:
    """Past fault: it was checked alone, and was then the only living member."""
    async with checked(KEYS) as (network, groups, health):
        network.dead = {*KEYS}
        await until(lambda: groups.dead(network.plan) == [*KEYS], 5)
        before = groups.choices["group:1"]
        network.dead = set()
        health.suspect(["node:3"])
        await until(lambda: groups.dead(network.plan) == [], 5)
        assert groups.choices["group:1"].elected == before.elected == "node:1"
        assert network.asked[-1][1] == KEYS


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
        assert groups.dead(network.plan) == []
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


async def test_a_group_with_another_check_is_checked_by_it_at_once() -> None:
    async with checked(KEYS) as (network, groups, health):
        await until(lambda: len(network.asked) == 2, 1)
        network.dead = {"node:1"}
        other = msgspec.structs.replace(network.plan.groups["group:1"], url=OTHER_URL)
        network.plan.groups["group:1"] = other
        health.look()
        took = await until(lambda: groups.delays_of(other).get("node:1") == DEAD, 1)
        assert took < 0.1
        assert groups.choices["group:1"].elected == "node:2"


async def test_a_result_by_a_url_that_its_group_no_longer_has_is_not_kept() -> None:
    async with checked(KEYS) as (network, groups, _):
        await until(lambda: len(network.asked) == 2, 1)
        before = network.plan.groups["group:1"]
        network.silent = {"node:1"}
        await until(lambda: len(network.asked) == 3, 1)
        network.plan.groups["group:1"] = msgspec.structs.replace(before, url=OTHER_URL)
        network.silent = set()
        await until(lambda: groups.delays_of(network.plan.groups["group:1"]) != {}, 10)
        assert groups.delays_of(before)["node:1"] == 9


def regrouped(groups: Groups, plan: Plan, **changes: object) -> Group:
    """Change the group of a plan, as a change in force does, and return it."""
    before = plan.groups["group:1"]
    plan.groups["group:1"] = after = msgspec.structs.replace(before, **changes)
    undo = Change(base=1, revision=0, groups=Patch(put={"group:1": before}))
    groups.forget_checks(undo, plan)
    return after


def test_results_of_a_check_that_a_group_had_do_not_decide_again(tmp_path: Path) -> None:
    groups, plan = Groups(tmp_path / "groups.json"), plan_of()
    groups.note(URL, {"node:1": DEAD, "node:2": 9})
    regrouped(groups, plan, url=OTHER_URL)
    groups.note(OTHER_URL, {"node:1": 7})
    assert groups.delays_of(regrouped(groups, plan, url=URL)) == {}
    groups.note(URL, {"node:1": DEAD, "node:2": 9})
    regrouped(groups, plan, members=KEYS[1:])
    assert groups.delays_of(regrouped(groups, plan, members=KEYS)) == {"node:2": 9}


def test_results_of_a_check_stay_while_another_group_makes_it(tmp_path: Path) -> None:
    groups, plan = Groups(tmp_path / "groups.json"), plan_of()
    plan.groups["group:2"] = msgspec.structs.replace(
        plan.groups["group:1"], mark=0x1800_0002, members=KEYS[:2]
    )
    groups.note(URL, dict.fromkeys(KEYS, DEAD))
    regrouped(groups, plan, url=OTHER_URL)
    assert groups.delays_of(plan.groups["group:2"]) == dict.fromkeys(KEYS[:2], DEAD)
    assert groups.delays_of(regrouped(groups, plan, url=URL)) == dict.fromkeys(KEYS[:2], DEAD)


def test_an_edited_node_has_no_known_delay(tmp_path: Path) -> None:
    groups = Groups(tmp_path / "groups.json")
    plan = plan_of()
    groups.note(URL, {"node:1": DEAD, "node:2": DEAD, "node:3": 9})
    anew = node_instance(1, "192.0.2.9")
    patch = Patch(put={"node:1": anew, "node:3": plan.instances["node:3"]}, drop=("node:2",))
    groups.forget(Change(base=0, revision=1, instances=patch), plan)
    assert groups.delays_of(plan.groups["group:1"]) == {"node:3": 9}


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


def test_a_bound_device_keeps_its_member_at_another_address(tmp_path: Path) -> None:
    """Past fault: a device to which DHCP gave another address left by another member, though its
    rule followed it.
    """
    mark = 0x1800_0001
    groups = Groups(tmp_path / "groups.json")
    plan = sticky({f"10.0.0.{number}": mark for number in range(1, 8)})
    anna, bert = "10.0.0.2", "10.0.0.3"
    plan.bindings |= {anna: "02:00:00:00:00:0a", bert: "02:00:00:00:00:0b"}

    def follow(**moved: str) -> dict[str, str]:
        """Let devices have other addresses."""
        before = {mac: address for address, mac in plan.bindings.items()}
        put = {address: f"02:00:00:00:00:{mac}" for mac, address in moved.items()}
        left = tuple({before[mac] for mac in put.values()} - put.keys())
        change = Change(
            base=0,
            revision=0,
            hosts=Patch(put=dict.fromkeys(put, mark), drop=left),
            bindings=Patch(put=put, drop=left),
        )
        groups.choices = groups.decide(plan, change)
        plan.apply(change)
        return groups.choices["group:1"].kept

    first = follow()
    assert first[anna] != first[bert]
    second = follow(**{"0a": "10.0.0.99"})
    assert second == {("10.0.0.99" if c == anna else c): member for c, member in first.items()}
    third = follow(**{"0a": bert, "0b": "10.0.0.99"})
    assert (third[bert], third["10.0.0.99"]) == (first[anna], first[bert])


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
    groups.note(URL, {"node:1": DEAD, "node:2": DEAD, "node:3": 9})
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


def mixed(**more: object) -> Plan:
    """Return a plan with a group of a node and two WANs."""
    group = Group(
        mark=0x1800_0001,
        members=("Interface:wan2", "node:1", "Interface:wan1"),
        strategy="fallback",
        url=URL,
        interval_s=INTERVAL_S,
    )
    return Plan(
        instances={"node:1": node_instance(1)},
        egresses={"wan1": Egress(number=1), "wan2": Egress(number=2, resolvers=("192.0.2.53",))},
        groups={"group:1": msgspec.structs.replace(group, **more)},
    )


def chosen(groups: Groups, plan: Plan) -> Choice:
    """Let the groups decide, and return the choice, which is in force then."""
    before = groups.choices
    groups.choices = groups.decide(plan, Change(base=0, revision=0))
    groups.note_left(before)
    return groups.choices["group:1"]


async def test_members_that_the_kernel_routes_are_checked_by_their_marks() -> None:
    network = Network(mixed())
    groups = Groups(Path("/nonexistent/groups.json"))

    async def changed() -> None:
        chosen(groups, network.plan)

    await changed()
    health = GroupChecks(network, groups, lambda: network.plan, changed)
    health.start()
    try:
        await until(lambda: len(groups.measured(network.plan)) == 3, 1)
        assert str(egress_mark(2)) in network.documents["Interface:wan2"]
        assert "192.0.2.53" in network.documents["Interface:wan2"]
        network.dead = {"Interface:wan2"}
        await until(lambda: groups.choices["group:1"].elected == "node:1", 2)
        assert groups.dead(network.plan) == ["Interface:wan2"]
    finally:
        await health.close()


def test_a_closed_interface_is_dead_without_a_check(tmp_path: Path) -> None:
    groups, plan = Groups(tmp_path / "groups.json"), mixed()
    assert chosen(groups, plan).elected == "Interface:wan2"
    groups.note(URL, {"Interface:wan2": 5, "node:1": 5})
    groups.is_closed = lambda member: member == "Interface:wan2"
    choice = chosen(groups, plan)
    assert (choice.elected, choice.living) == ("node:1", ("node:1", "Interface:wan1"))


def test_clients_go_back_once_a_member_was_healthy_for_long_enough(tmp_path: Path) -> None:
    now = 1000.0
    groups, plan = Groups(tmp_path / "groups.json", lambda: now), mixed(failback_s=60)
    groups.note(URL, {"Interface:wan2": DEAD, "node:1": 5})
    assert chosen(groups, plan).elected == "node:1"
    groups.note(URL, {"Interface:wan2": 5})
    now += 59
    assert chosen(groups, plan).elected == "node:1"
    now += 1
    assert chosen(groups, plan).elected == "Interface:wan2"
    never = mixed(failback_s=-1)
    groups.note(URL, {"Interface:wan2": DEAD})
    assert chosen(groups, never).elected == "node:1"
    groups.note(URL, {"Interface:wan2": 5})
    now += 86_400
    assert chosen(groups, never).elected == "node:1"


def test_flows_of_a_member_that_was_left_are_drained_for_five_minutes(tmp_path: Path) -> None:
    now = 1000.0
    groups, plan = Groups(tmp_path / "groups.json", lambda: now), mixed(on_switch="drain")
    assert chosen(groups, plan).living == ("Interface:wan2",)
    reordered = mixed(on_switch="drain", members=("node:1", "Interface:wan2", "Interface:wan1"))
    groups.note(URL, {"node:1": 5})
    for _ in range(2):
        assert chosen(groups, reordered).living == ("node:1", "Interface:wan2")
    groups.save()
    now += DRAIN_S
    assert chosen(groups, reordered).living == ("node:1",)
    # A netd that starts meanwhile does not know when the member was left.
    upgraded = Groups(tmp_path / "groups.json", lambda: now)
    upgraded.load()
    upgraded.note(URL, {"node:1": 5})
    assert chosen(upgraded, reordered).living == ("node:1", "Interface:wan2")
    now += DRAIN_S
    assert chosen(upgraded, reordered).living == ("node:1",)


def test_each_group_judges_by_its_own_url(tmp_path: Path) -> None:
    groups, plan = Groups(tmp_path / "groups.json"), mixed()
    other = msgspec.structs.replace(plan.groups["group:1"], mark=0x1800_0002, url="http://b.test/")
    plan.groups["group:2"] = other
    groups.note(URL, {"node:1": DEAD})
    groups.note("http://b.test/", {"node:1": 7})
    assert groups.delays_of(plan.groups["group:1"]) == {"node:1": DEAD}
    assert groups.delays_of(other) == {"node:1": 7}
    assert groups.dead(plan) == []
    assert groups.measured(plan) == {"node:1": 7}


def test_an_interface_that_is_open_again_is_checked_before_clients_return(tmp_path: Path) -> None:
    groups, plan = Groups(tmp_path / "groups.json"), mixed()
    groups.note(URL, {"Interface:wan2": 5, "node:1": 5})
    assert chosen(groups, plan).elected == "Interface:wan2"
    groups.is_closed = lambda member: member == "Interface:wan2"
    assert chosen(groups, plan).elected == "node:1"
    groups.is_closed = lambda _: False
    assert chosen(groups, plan).elected == "node:1"
    groups.note(URL, {"Interface:wan2": 5})
    assert chosen(groups, plan).elected == "Interface:wan2"

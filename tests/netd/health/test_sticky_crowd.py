"""A thousand clients of a sticky group of 50 members: no client moves that need not."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from egressd.model.plan import Change, Group, Patch, Plan
from egressd.netd.health.groups import Groups
from egressd.planner.groups import DEAD, Choice, Turn
from tests.support.nodes.instances import node_instance

MARK: Final = 0x1800_0001
URL: Final = "http://site.test/"
CLIENTS: Final = [f"10.0.{number // 250}.{number % 250 + 1}" for number in range(1000)]
KEYS: Final = [f"node:{number}" for number in range(1, 41)] + [
    f"Interface:wan{number}" for number in range(1, 21)
]
"""Members that the group has or may get."""
MEMBERS: Final = 50

Step = tuple[str, int]
steps = st.tuples(
    st.sampled_from(
        ["add", "remove", "order", "die", "return", "rotate", "rotate all", "come", "go", "restart"]
    ),
    st.integers(0, 999),
)


class Rig:
    """A group, its clients, and what netd decides about them."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "groups.json"
        self.groups = Groups(self.file)
        self.dead: set[str] = set()
        members = [*KEYS[:30], *KEYS[40:]]
        assert len(members) == MEMBERS
        self.plan = Plan(
            instances={key: node_instance(int(key[5:])) for key in KEYS if key.startswith("node:")},
            hosts=dict.fromkeys(CLIENTS, MARK),
            groups={"group:1": self._group(members)},
        )
        self.carry_out()

    @property
    def members(self) -> list[str]:
        return [*self.plan.groups["group:1"].members]

    @property
    def choice(self) -> Choice:
        return self.groups.choices["group:1"]

    def carry_out(self, members: list[str] | None = None, hosts: Patch[int] | None = None) -> None:
        """Change the plan, and let netd decide."""
        put = {} if members is None else {"group:1": self._group(members)}
        change = Change(base=0, revision=0, groups=Patch(put=put), hosts=hosts or Patch())
        self.groups.choices = self.groups.decide(self.plan, change)
        self.plan.apply(change)

    def take(self, step: Step) -> set[str]:
        """Take a step, and return the clients that it names."""
        verb, number = step
        key, client = KEYS[number % len(KEYS)], CLIENTS[number]
        draw = random.Random(number)
        match verb:
            case "add":
                self.carry_out([*dict.fromkeys([*self.members, key])])
            case "remove" if self.members != [key]:
                self.carry_out([each for each in self.members if each != key])
            case "order":
                self.carry_out(draw.sample(self.members, len(self.members)))
            case "die" | "return":
                self.dead = self.dead | {key} if verb == "die" else self.dead - {key}
                self.groups.note(URL, {key: DEAD if verb == "die" else 9})
                self.carry_out()
            case "rotate" | "rotate all":
                some = {*draw.sample(sorted(self.plan.hosts), 20)}
                turn = Turn(some, and_slots=False) if verb == "rotate" else Turn()
                with self.groups.turning({"group:1": turn}):
                    self.carry_out()
                return {*self.plan.hosts} if verb == "rotate all" else some
            case "come":
                self.carry_out(hosts=Patch(put={client: MARK}))
            case "go":
                self.carry_out(hosts=Patch(drop=(client,) if client in self.plan.hosts else ()))
            case "restart":
                self.groups.save()
                self.groups = Groups(self.file)
                self.groups.load()
                self.groups.note(URL, dict.fromkeys(self.dead, DEAD))
                self.carry_out()
        return set()

    @staticmethod
    def _group(members: list[str]) -> Group:
        return Group(mark=MARK, members=tuple(members), strategy="sticky", url=URL, interval_s=10)


@given(st.lists(steps, max_size=25))
@settings(max_examples=60, deadline=None)
def test_no_clients_move_but_those_of_lost_members_and_rotated_ones(taken: list[Step]) -> None:
    with TemporaryDirectory() as folder:
        rig = Rig(Path(folder))
        assert set(Counter(rig.choice.kept.values()).values()) == {len(CLIENTS) // MEMBERS}
        for step in taken:
            before = rig.choice
            named = rig.take(step)
            after, members = rig.choice, {*rig.members}
            able = members - rig.dead or members
            assert {*after.living} == able
            assert after.kept.keys() == rig.plan.hosts.keys()
            for client in before.kept.keys() & after.kept.keys():
                if client not in named:
                    is_lost = before.kept[client] not in able
                    assert (after.kept[client] != before.kept[client]) == is_lost, client
                assert after.kept[client] in able
            if step[0] != "rotate all":
                for old, new in zip(before.slots, after.slots, strict=True):
                    assert (old != new) == (old not in able)


@pytest.mark.parametrize("lost", [1, 10])
def test_clients_of_lost_members_are_spread_over_the_others(tmp_path: Path, lost: int) -> None:
    rig = Rig(tmp_path)
    rig.carry_out(rig.members[lost:])
    loads = Counter(rig.choice.kept.values())
    assert len(loads) == MEMBERS - lost
    assert max(loads.values()) - min(loads.values()) <= 1

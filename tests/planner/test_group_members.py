"""The members of groups that are in each other."""

from __future__ import annotations

import time

from egressd.model.desired import DesiredState, Edit
from egressd.model.nouns import TargetGroup
from egressd.planner.targets import members_of


def state_of(*groups: tuple[str, tuple[str, ...]]) -> DesiredState:
    edits = [
        Edit("groups", key, TargetGroup(id=key, name=name, members=members))
        for key, (name, members) in enumerate(groups, 1)
    ]
    return DesiredState().with_edits(edits, 1)


def test_members_of_groups_stand_in_their_place_and_once() -> None:
    state = state_of(
        ("upper", ("Interface:wan1", "Group_lower", "DIRECT", "Interface:wan2")),
        ("lower", ("Interface:wan2", "Interface:wan1")),
    )
    assert members_of(state, "upper") == ("Interface:wan1", "Interface:wan2", "DIRECT")


def test_groups_in_a_circle_have_each_member_once() -> None:
    state = state_of(
        ("one", ("Group_two", "Interface:wan1")), ("two", ("Group_one", "Interface:wan2"))
    )
    assert members_of(state, "one") == ("Interface:wan2", "Interface:wan1")
    assert members_of(state, "two") == ("Interface:wan1", "Interface:wan2")


def test_groups_in_many_others_are_looked_at_once() -> None:
    levels = [[f"g{level}-{n}" for n in range(100)] for level in range(4)]
    inner = [tuple(f"Group_{name}" for name in level) for level in levels[1:]]
    listed = [*inner, ("Interface:wan1",)]
    state = state_of(
        *((name, below) for level, below in zip(levels, listed, strict=True) for name in level)
    )
    began = time.thread_time()
    assert members_of(state, "g0-0") == ("Interface:wan1",)
    assert time.thread_time() - began < 0.5  # 0.01 s of a processor; a million ways lead down

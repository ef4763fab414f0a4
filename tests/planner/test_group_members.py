"""The members of groups that are in each other."""

from __future__ import annotations

import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from egressd.model.desired import DesiredState, Edit
from egressd.model.names import parse_target
from egressd.model.nouns import TargetGroup
from egressd.planner.name_filters import is_found
from egressd.planner.targets import members_of
from tests.support.random_edits import Author, steps


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


def naive(state: DesiredState, group: str, passed: frozenset[str] = frozenset()) -> list[str]:
    """Return the members of a group by its definition alone."""
    settings = state.group_settings(group)
    found: list[str] = []
    for member in settings.members:
        parsed = parse_target(member)
        if parsed.kind != "group":
            found += [member] if state.target_exists(parsed) else []
        elif parsed.name not in passed:
            found += naive(state, parsed.name, passed | {group})
    for node in sorted(state.nodes.values(), key=lambda each: each.id):
        is_filtered = settings.filter and is_found(settings.filter, node.name)
        found += [node.name] if node.group == group or is_filtered else []
    return found


@given(st.lists(steps, max_size=12))
@settings(max_examples=200)
def test_members_after_each_change_are_those_of_the_definition(changes: list[Any]) -> None:
    author = Author(DesiredState())
    for verb, positional, keyword in changes:
        getattr(author, verb)(*positional, **keyword)
        for name in ("fast", "mixed", "cheap"):
            expected = [*dict.fromkeys(naive(author.state, name))]
            assert [*members_of(author.state, name)] == expected

"""The explanation of a client whose target is a group: its member, and the one that comes next."""

from __future__ import annotations

from typing import Any

import pytest

from egressd.model.desired import Edit
from egressd.model.messages import Status
from egressd.model.nouns import GroupStrategy, TargetGroup
from egressd.service.route_explanation import MEMBERS_MAX, Explanation, explain, question
from tests.service.judged import node, rules, seen, state
from tests.support.use_cases import RESOLVERS

MEMBERS = ("one", "Interface:wan2", "DIRECT")
KEY = "group:5"


def explained(strategy: GroupStrategy, what: Status, member: str = "", **more: Any) -> Explanation:
    group = TargetGroup(id=1, name="g", strategy=strategy, **{"members": MEMBERS, **more})
    made = state(
        node(1, "one"),
        Edit("groups", 1, group),
        Edit("numbers", "Group_g", 5),
        Edit("numbers", "Interface:wan2", 2),
        *rules("Group_g"),
    )
    asked = question("10.0.0.1", "192.0.2.1", 443, "tcp")
    return explain(asked, made, RESOLVERS, what, member=member)


def said(found: Explanation) -> list[str]:
    """Return the steps about the group's members."""
    steps = [str(step) for step in found.steps]
    at = steps.index("the target is Group_g") + 1
    return steps[at : next(n for n, step in enumerate(steps) if step.startswith("it leaves by"))]


@pytest.mark.parametrize(
    ("strategy", "what", "steps"),
    [
        (
            "fallback",
            seen(elected={KEY: "node:1"}),
            [
                "its new connections go to one, by the group's strategy fallback",
                "if that fails, they go to Interface:wan2",
            ],
        ),
        (
            "fallback",
            seen(elected={KEY: "DIRECT"}, failing={"node:1": "refused"}),
            [
                "its new connections go to DIRECT, by the group's strategy fallback",
                "one comes first and is passed over: refused",
                "if that fails, they go to Interface:wan2",
            ],
        ),
        (
            "fallback",
            seen(
                elected={KEY: "DIRECT"},
                failing={"node:1": "refused"},
                silent_members=("Interface:wan2",),
            ),
            [
                "its new connections go to DIRECT, by the group's strategy fallback",
                "one comes first and is passed over: refused",
                "Interface:wan2 comes first and is passed over: Interface:wan2: the check of its "
                "group gets no answer",
                "no other member works: if that fails, they are blocked",
            ],
        ),
        (
            "urltest",
            seen(elected={KEY: "node:1"}, delays={"Interface:wan2": 90, "DIRECT": 20}),
            [
                "its new connections go to one, by the group's strategy urltest",
                "if that fails, they go to DIRECT",
            ],
        ),
        ("fallback", seen(), []),
    ],
)
def test_the_steps_have_the_member_in_use_and_the_next(
    strategy: GroupStrategy, what: Status, steps: list[str]
) -> None:
    found = explained(strategy, what)
    assert said(found) == steps
    assert [member.target for member in found.members] == list(MEMBERS)


def test_a_client_of_a_sticky_group_has_its_own_member() -> None:
    found = explained("sticky", seen(elected={KEY: ""}), "Interface:wan2")
    assert said(found) == [
        "its new connections go to Interface:wan2, by the group's strategy sticky",
        "if that fails, they go to one of 2 other members",
    ]
    assert [member.is_current for member in found.members] == [False, True, False]
    assert said(explained("sticky", seen(elected={KEY: ""}))) == []


def test_the_shown_members_are_bounded_and_have_the_one_in_use() -> None:
    members = tuple(f"Interface:eth{number}" for number in range(100))
    found = explained("sticky", seen(), members[-1], members=members)
    assert len(found.members) == MEMBERS_MAX
    assert [member.target for member in found.members if member.is_current] == [members[-1]]

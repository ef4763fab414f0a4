"""A group as it is now: its members in order, their health, and the one in use."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from egressd.model.desired import DesiredState
from egressd.model.messages import Status
from egressd.model.names import DIRECT, GROUP_PREFIX, parse_target
from egressd.model.nouns import GroupStrategy, TargetGroup
from egressd.model.wording import NONE, Coded, Coding, Sentence, say
from egressd.planner.compile import group_key
from egressd.planner.targets import members_of
from egressd.service.group_members import key_of, missing_members
from egressd.service.judgement import why_closed


class GroupMember(Coding, frozen=True, kw_only=True):
    """A member of a group at the moment."""

    target: Annotated[str, Meta(description="As rules name it; no group is among them.")]
    kind: Annotated[str, Meta(description="`node`, `interface` or `direct`.")]
    is_alive: Annotated[bool | None, Meta(description="Null if it has not been checked.")] = None
    delay_ms: Annotated[int | None, Meta(description="Milliseconds of its last check.")] = None
    is_current: Annotated[
        bool,
        Meta(description="True if new connections go to it: all clients', or the asked one's."),
    ]
    reason: Annotated[Sentence, Meta(description="Why it does not work; else empty.")]
    reason_coded: Coded | None = None


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """A group's settings, and what they mean now."""

    settings: TargetGroup
    has_settings: bool
    strategy: GroupStrategy
    """The strategy in force, which may be the device's."""
    rules: int
    """Enabled rules that name the group."""
    resolved: tuple[GroupMember, ...]
    missing: tuple[str, ...]


def view_of(state: DesiredState, group: TargetGroup, seen: Status | None) -> GroupView:
    """Return a group as it is now; without `seen` its members are left out. O(nodes)."""
    target = GROUP_PREFIX + group.name
    return GroupView(
        settings=group,
        has_settings=group.name in state.group_by_name,
        strategy=state.strategy_of(group),
        rules=state.target_uses.get(target, 0),
        resolved=() if seen is None else members_now(state, group.name, seen),
        missing=missing_members(state, group.name),
    )


def members_now(
    state: DesiredState, group: str, seen: Status, current: str = ""
) -> tuple[GroupMember, ...]:
    """Return the members of a group in order. `current` is the key of the one in use by one client;
    without it, it is the one of all clients. O(nodes).
    """
    target = GROUP_PREFIX + group
    if not current and target in state.numbers:
        current = seen.elected.get(group_key(state, target), "")
    return tuple(_member(state, member, current, seen) for member in members_of(state, group))


def _member(state: DesiredState, target: str, elected: str, seen: Status) -> GroupMember:
    key = key_of(state, target)
    delay = seen.delays.get(key)
    reason = _problem(target, key, seen)
    return GroupMember(
        target=target,
        kind=parse_target(target).kind,
        is_alive=False if reason else None if delay is None else True,
        delay_ms=None if reason else delay,
        is_current=key == elected,
        reason=reason,
    )


def _problem(target: str, key: str, seen: Status) -> Sentence:
    """Return why a member does not work, as far as netd knows; else empty."""
    if key in seen.failing:
        return seen.failing[key]
    if key in seen.instances:
        return seen.instances[key].problem
    parsed = parse_target(target)
    if parsed.kind not in ("interface", "direct"):
        return NONE
    name = parsed.name or DIRECT
    if target in seen.silent_members:
        return say("member-silent", target=target)
    return why_closed(name, seen) or seen.dead_ends.get(name, NONE)

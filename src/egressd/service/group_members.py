"""The members of groups, by the configuration, and their keys in netd's reports."""

from __future__ import annotations

from egressd.model.desired import DesiredState
from egressd.model.names import parse_target
from egressd.planner.exits import node_key
from egressd.planner.targets import members_of


def has_members(state: DesiredState, group: str) -> bool:
    """True if the group has a member that exists. O(1) if a node bears its name."""
    return group in state.group_sizes or bool(members_of(state, group))


def key_of(state: DesiredState, target: str) -> str:
    """Return the key by which netd reports a member: a node's, or the target itself."""
    node = state.node_named(target)
    return target if node is None else node_key(node.id)


def member_name(state: DesiredState, key: str) -> str:
    """Return the member of a group that netd reports by this key, as rules name it; empty if there
    is none.
    """
    number = key.removeprefix("node:")
    if number == key:  # empty, or a target that the kernel routes
        return key
    node = state.nodes.get(int(number))
    return "" if node is None else node.name


def routed_member(state: DesiredState, group: str) -> str:
    """Return the first member of a group that is no node, also of a group in it; empty if all are
    nodes.
    """
    return _routed_member(state, group, set())


def _routed_member(state: DesiredState, group: str, passed: set[str]) -> str:
    passed.add(group)
    settings = state.group_named(group)
    for target in () if settings is None else settings.members:
        parsed = parse_target(target)
        if parsed.kind in ("direct", "interface"):
            return target
        if (
            parsed.kind == "group"
            and parsed.name not in passed
            and (found := _routed_member(state, parsed.name, passed))
        ):
            return found
    return ""


def missing_members(state: DesiredState, group: str) -> tuple[str, ...]:
    """Return the targets in a group's list that do not exist."""
    settings = state.group_named(group)
    listed = () if settings is None else settings.members
    return tuple(target for target in listed if not state.target_exists(parse_target(target)))

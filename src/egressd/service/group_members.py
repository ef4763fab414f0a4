"""The members of groups, by the configuration."""

from __future__ import annotations

from collections.abc import Iterator

from egressd.model.desired import DesiredState
from egressd.model.names import parse_target
from egressd.planner.name_filters import matches


def members_of(state: DesiredState, group: str) -> tuple[str, ...]:
    """Return the members of a group as targets, in order and each once. The members of a group
    among them stand in its place; one that does not exist is left out. O(nodes).
    """
    return tuple(dict.fromkeys(_members(state, group, (group,))))


def _members(state: DesiredState, group: str, path: tuple[str, ...]) -> Iterator[str]:
    settings = state.group_named(group)
    pattern = "" if settings is None else settings.filter
    for target in () if settings is None else settings.members:
        parsed = parse_target(target)
        if parsed.kind == "group":
            if parsed.name not in path:  # a circle ends
                yield from _members(state, parsed.name, (*path, parsed.name))
        elif state.target_exists(parsed):
            yield target
    if group in state.group_sizes or pattern:
        for node_id in sorted(state.nodes):
            node = state.nodes[node_id]
            if node.group == group or (pattern and matches(pattern, node.name)):
                yield node.name


def has_members(state: DesiredState, group: str) -> bool:
    """True if the group has a member that exists. O(1) if a node bears its name."""
    if group in state.group_sizes:
        return True
    return next(_members(state, group, (group,)), None) is not None


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

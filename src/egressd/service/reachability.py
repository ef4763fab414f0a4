"""The egresses of a target's traffic, and the reason why it is blocked, by the configuration
alone.
"""

from __future__ import annotations

from egressd.model.desired import DesiredState
from egressd.model.names import DIRECT, TargetName
from egressd.model.wording import NONE, Sentence, say
from egressd.planner.nodes import DialPath, settings_of
from egressd.planner.targets import dial_paths, dial_problem
from egressd.planner.topology import is_line
from egressd.service.group_members import has_members


def egresses_of(state: DesiredState, target: TargetName) -> tuple[str, ...]:
    """Return the interfaces that a target's traffic may leave by; ``DIRECT``: the device's own
    choice.
    """
    if target.kind not in ("node", "group"):
        return routed_by(target)
    return tuple(dict.fromkeys(egress_of(path) for path in dial_paths(state, target)))


def routed_by(target: TargetName) -> tuple[str, ...]:
    """Return the egresses of a target that the kernel routes; empty for any other target."""
    match target.kind:
        case "direct":
            return (DIRECT,)
        case "interface":
            return (target.name,)
        case _:
            return ()


def egress_of(path: DialPath) -> str:
    """Return the interface that the outermost hop's packets leave by, or ``DIRECT``."""
    return settings_of(path.hops[-1]).interface_name or DIRECT


def why_blocked(state: DesiredState, target: TargetName) -> Sentence:
    """Return why no traffic can be sent to `target`, by the configuration alone; else `NONE`."""
    if not state.target_exists(target):
        return say("gone", kind=target.kind, name=target.name)
    if target.kind == "interface" and is_line(target.name):
        line_id = state.line_by_name.get(target.name)
        if line_id is None:
            return say("gone", kind="line", name=target.name)
        if not state.lines[line_id].is_enabled:
            return say("line-disabled", name=target.name)
    if target.kind == "node" and (node := state.node_named(target.name)):
        return dial_problem(state, node)
    if target.kind == "group" and not has_members(state, target.name):
        return say("group-empty", name=target.name)
    return NONE

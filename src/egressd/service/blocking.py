"""Where a target's traffic leaves, and why its clients are blocked, if they are."""

from __future__ import annotations

from egressd.model.desired import DesiredState
from egressd.model.messages import Status
from egressd.model.names import DIRECT, TargetName
from egressd.planner.nodes import DialPath, settings_of
from egressd.planner.targets import dial_paths, dial_problem
from egressd.planner.topology import is_line


def egresses_of(state: DesiredState, target: TargetName) -> tuple[str, ...]:
    """The interfaces that a target's traffic may leave by; ``DIRECT``: the device's own choice."""
    if target.kind not in ("node", "group"):
        return routed_by(target)
    return tuple(dict.fromkeys(egress_of(way) for way in dial_paths(state, target)))


def routed_by(target: TargetName) -> tuple[str, ...]:
    """The same for a target that the kernel routes."""
    match target.kind:
        case "direct":
            return (DIRECT,)
        case "interface":
            return (target.name,)
        case _:
            return ()


def egress_of(way: DialPath) -> str:
    """The interface that the outermost hop's packets leave by, or ``DIRECT``."""
    return settings_of(way.hops[-1]).interface_name or DIRECT


def why_blocked(state: DesiredState, target: TargetName) -> str | None:
    """Why no traffic can be sent to `target`, as far as the configuration tells; else None."""
    if not state.target_exists(target):
        return f"there is no {target.kind} {target.name}"
    if target.kind == "interface" and is_line(target.name):
        line_id = state.line_by_name.get(target.name)
        if line_id is None:
            return f"there is no line {target.name}"
        if not state.lines[line_id].is_enabled:
            return f"the line {target.name} is disabled"
    if target.kind == "node" and (node := state.node_named(target.name)):
        return dial_problem(state, node) or None
    return None


def why_blocked_now(
    state: DesiredState,
    target: TargetName,
    egresses: tuple[str, ...],
    keys: set[str],
    seen: Status,
) -> str:
    """Why clients of `target`, which leave by `egresses`, are blocked at the moment; else empty.

    `keys` are those of the engine instances that serve a node or a group. REJECT blocks nobody
    by mistake, so it has no reason.
    """
    if state.settings.stopped:
        return "an operator has stopped the device"
    return (
        (why_blocked(state, target) or "")
        or _instance_problem(target, egresses, keys, seen)
        or _egress_problem(egresses, seen)
    )


def why_failing(target: TargetName, keys: set[str], seen: Status) -> str:
    """Why what is sent to a node or a group gets no further, as far as is known; else empty.

    `keys` are those of the engine instances of its nodes, but for nodes that have no way out.
    """
    reasons = [seen.failing[key] for key in sorted(keys & seen.failing.keys())]
    if not reasons or len(reasons) < len(keys):
        return ""
    if target.kind == "node":
        return f"its node fails: {reasons[0]}"
    return f"all of its nodes fail: {reasons[0]}"


def _instance_problem(
    target: TargetName, egresses: tuple[str, ...], keys: set[str], seen: Status
) -> str:
    """Why the engine instances of a target serve nobody; empty when one does, or none has to."""
    if target.kind not in ("node", "group"):
        return ""
    if not egresses:
        return "none of its nodes has a way out"
    problems = [seen.instances[key].problem for key in sorted(keys & seen.instances.keys())]
    return problems[0] if problems and all(problems) else ""


def _egress_problem(egresses: tuple[str, ...], seen: Status) -> str:
    """Why nothing can leave by any of these interfaces; empty when something can."""
    if not egresses or DIRECT in egresses or not seen.revision:
        return ""
    known = {interface.name: interface for interface in seen.interfaces}
    reasons = []
    for name in egresses:
        interface = known.get(name)
        line = seen.lines.get(name)
        if interface is not None and interface.is_up and interface.ip:
            return ""
        if line is not None and not line.is_online:
            reasons.append(f"the line {name} is offline: {line.reason or line.state}")
        elif interface is None:
            reasons.append(f"there is no interface {name}")
        elif not interface.is_up:
            reasons.append(f"the interface {name} is down")
        else:
            reasons.append(f"the interface {name} has no address")
    return "; ".join(reasons)

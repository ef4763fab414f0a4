"""The targets whose exits are watched: nodes, lines and WANs in use. Pure."""

from __future__ import annotations

import msgspec

from egressd.model.desired import DesiredState
from egressd.model.device import Resolvers
from egressd.model.exits import ExitKind
from egressd.model.instances import KernelPath, NodePath
from egressd.model.names import DIRECT, INTERFACE_PREFIX, parse_target
from egressd.model.nouns import Node
from egressd.planner import instances
from egressd.planner.nodes import DialPath
from egressd.planner.probes import target_paths
from egressd.planner.targets import dial_path, nodes_of, reached, used_targets


class ExitTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A target with an exit, and the path of requests that leave by it."""

    key: str
    """A key that outlives a change of the name."""
    name: str
    """A node's name; otherwise the target as rules name it."""
    kind: ExitKind
    path: NodePath | KernelPath


def exit_targets(state: DesiredState, resolvers: Resolvers) -> dict[str, ExitTarget]:
    """Return by key every node in use, the interfaces that nodes, rules and proxy services leave
    by, and DIRECT if any of them does. A target that leads nowhere is left out.
    """
    used = reached(state, used_targets(state))
    found: list[ExitTarget] = []
    names = {s.outbound_interface for s in state.services.values() if s.is_enabled}
    names |= {parsed.name for parsed in map(parse_target, used) if parsed.kind == "interface"}
    is_direct = DIRECT in used
    for node in nodes_of(state, used):
        dialled = dial_path(state, node)
        if dialled is None:
            continue
        if dialled.interface:
            names.add(dialled.interface)
        else:
            is_direct = True
        found.append(_of_node(node, dialled, resolvers))
    others = [INTERFACE_PREFIX + name for name in names]
    if is_direct:
        others.append(DIRECT)
    for target in others:
        found += _routed(state, target, resolvers)
    return {each.key: each for each in found}


def exit_target(state: DesiredState, name: str, resolvers: Resolvers) -> ExitTarget | None:
    """Return a node by its name, or an interface or DIRECT as rules name it, in use or not; None if
    it leads nowhere, or is a group.
    """
    parsed = parse_target(name)
    if parsed.kind == "node":
        node = state.node_named(name)
        dialled = None if node is None else dial_path(state, node)
        if node is None or dialled is None:
            return None
        return _of_node(node, dialled, resolvers)
    if parsed.kind == "group":
        return None
    return next(iter(_routed(state, name, resolvers)), None)


def node_key(node_id: int) -> str:
    """Return the key of a node's exit."""
    return f"node:{node_id}"


def _of_node(node: Node, dialled: DialPath, resolvers: Resolvers) -> ExitTarget:
    hops = instances.node_path(dialled, resolvers)
    return ExitTarget(key=node_key(node.id), name=node.name, kind="node", path=hops)


def _routed(state: DesiredState, target: str, resolvers: Resolvers) -> list[ExitTarget]:
    """Return a target that the kernel routes; none if it leads nowhere."""
    paths = target_paths(state, parse_target(target), resolvers).values()
    kind = _kind(state, target)
    return [ExitTarget(key=target, name=target, kind=kind, path=path) for path in paths]


def _kind(state: DesiredState, target: str) -> ExitKind:
    if target == DIRECT:
        return "direct"
    return "line" if parse_target(target).name in state.line_by_name else "wan"

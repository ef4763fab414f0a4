"""Paths for requests that take a target's egress: the same hops and marks as its clients."""

from __future__ import annotations

from egressd.model.desired import DesiredState
from egressd.model.device import Resolvers
from egressd.model.instances import KernelPath, NodePath
from egressd.model.names import TargetName, parse_target
from egressd.model.nouns import Node
from egressd.planner import instances
from egressd.planner.compile import egress_resolvers
from egressd.planner.registry import MARK_REJECT
from egressd.planner.targets import dial_path, dial_paths, mark_of, members_of


def target_paths(
    state: DesiredState, target: TargetName, resolvers: Resolvers
) -> dict[str, NodePath | KernelPath]:
    """Return a path for each dial path of `target`, by name.

    The name is a node's, or for a target that the kernel routes the target itself; a target that
    blocks has no path.
    """
    if target.kind == "group":
        members = map(parse_target, members_of(state, target.name))
        return {
            name: path
            for member in members
            for name, path in target_paths(state, member, resolvers).items()
        }
    if target.kind == "node":
        return {
            path.hops[0].name: instances.node_path(path, resolvers)
            for path in dial_paths(state, target)
        }
    mark = mark_of(state, str(target))
    if mark == MARK_REJECT:
        return {}
    servers = resolvers.all_reached_by(target.name)
    if target.kind == "interface":
        servers = egress_resolvers(state, resolvers, target.name) or servers
    return {str(target): KernelPath(mark=mark, resolver=servers[0])}


def node_path(state: DesiredState, node: Node, resolvers: Resolvers) -> NodePath | None:
    """Return the path that dials `node`, for a trial or a measurement; None if it has no egress."""
    path = dial_path(state, node)
    return None if path is None else instances.node_path(path, resolvers)

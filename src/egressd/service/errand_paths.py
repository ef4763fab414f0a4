"""The paths of an errand: those of its target, and of nothing else."""

from __future__ import annotations

from egressd.model.desired import DesiredState
from egressd.model.device import Resolvers
from egressd.model.instances import KernelPath, NodePath
from egressd.model.messages import WAYS_MAX, Status
from egressd.model.names import parse_target
from egressd.planner.compile import group_key
from egressd.planner.probes import target_paths
from egressd.service.group_members import key_of


def errand_paths(
    state: DesiredState, via: str, resolvers: Resolvers, seen: Status | None
) -> list[NodePath | KernelPath]:
    """Return the paths of a target: of a group the member in use first, then those that are not
    known to fail. None if the target leads nowhere.
    """
    target = parse_target(via)
    paths = target_paths(state, target, resolvers)
    if target.kind != "group" or seen is None or not paths:
        return [*paths.values()][:WAYS_MAX]
    elected = seen.elected.get(group_key(state, via), "")

    def rank(name: str) -> tuple[bool, bool, int]:
        key = key_of(state, name)
        return key != elected, key in seen.failing, seen.delays.get(key, 1 << 30)

    return [paths[name] for name in sorted(paths, key=rank)][:WAYS_MAX]

"""The interfaces that clients' packets may leave by."""

from __future__ import annotations

from collections.abc import Collection

from egressd.model.plan import Plan
from egressd.planner.topology import Topology, is_line


def open_egresses(plan: Plan, topology: Topology, outdated: Collection[str]) -> tuple[str, ...]:
    """Return the interfaces that packets with the marks of the plan's egresses may leave by.

    A line that should not be up, or whose settings changed (it is `outdated`), is no egress, though
    its interface takes a moment to go. An interface that leads to a LAN or this machine alone is
    none either: no target or proxy service may give access to these.
    """
    inner = {"lo", *topology.lans} - {*topology.wans, *topology.routable}
    return tuple(
        name
        for name in plan.egresses
        if name not in inner
        and (not is_line(name) or (name in plan.lines and name not in outdated))
    )

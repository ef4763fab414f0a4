"""A change of the plan with all that follows from it, computed before anything is touched.

Pure: computed from the change, the plan that it starts from, and the instances that have started
for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum, auto
from typing import NamedTuple

from egressd.model.plan import Change, Plan
from egressd.netd.engine.slot import Running
from egressd.netd.health.groups import Choices
from egressd.netd.reconciler.moved_clients import ClientMove
from egressd.planner.nft import HostUpdate


class Scope(Enum):
    """The part of the nftables table that a step changes."""

    HOSTS = auto()
    """Single clients."""
    SETS = auto()
    """Elements of any set."""
    TABLE = auto()
    """The whole table."""


class StartResult(NamedTuple):
    """The instances that were started for a change, beside those that serve."""

    started: Mapping[str, Running]
    """Instance key -> the instance, also of nodes that groups choose."""
    failed: Collection[str]
    """The keys of the instances that did not start."""
    choices: Choices
    """The choices of groups after the change."""


class Step(NamedTuple):
    """A change, its inverse, and its effects on clients, the kernel and the engine."""

    change: Change
    undo: Change
    """The change that leads back."""
    started: Mapping[str, Running]
    choices: Choices
    ports: Mapping[str, int]
    """Instance key -> its port after the change."""
    gone: Collection[str]
    """The keys that no instance serves any more. They include instances that did not start: a
    predecessor with another configuration must not serve in their place."""
    ended_services: Collection[str]
    """The keys whose proxy services end before the table no longer guards their ports."""
    move: ClientMove
    """The clients that the change moves."""
    hosts: HostUpdate
    """The part of the nftables transaction that moves single clients."""
    hosts_touched: Collection[str]
    """The addresses whose rule, limit or binding the change touches."""
    touches_networks: bool
    """True if the change touches a CIDR rule or its limit."""
    scope: Scope
    is_regrouped: bool
    """True if the choices of groups differ from those in force."""
    is_local: bool
    """True if the change may concern clients in local networks."""
    alters_judgement: bool
    """True if more than the marks of hosts differs in the judgement of flows."""
    alters_routes: bool
    """True if routes or policy rules may differ."""


def step_of(
    change: Change,
    plan: Plan,
    start: StartResult,
    *,
    ports: Mapping[str, int],
    move: ClientMove,
    hosts: HostUpdate,
    is_regrouped: bool,
    is_local: bool,
) -> Step:
    """Return the step that puts `change` in force, in place of `plan`.

    `ports` are the ports in use before it; see `Step` for the other arguments.
    """
    gone = frozenset((*change.instances.drop, *start.failed))
    kept = {key: port for key, port in ports.items() if key not in gone}
    if change.policy is not None:
        scope = Scope.TABLE
    elif is_regrouped or is_local or is_more_than_hosts(change):
        scope = Scope.SETS
    else:
        scope = Scope.HOSTS
    return Step(
        change=change,
        undo=change.inverse(plan),
        started=start.started,
        choices=start.choices,
        ports=kept | {key: running.port for key, running in start.started.items()},
        gone=gone,
        ended_services=gone | start.started.keys(),
        move=move,
        hosts=hosts,
        hosts_touched=hosts_touched(change),
        touches_networks=touches_networks(change),
        scope=scope,
        is_regrouped=is_regrouped,
        is_local=is_local,
        alters_judgement=is_regrouped or changes_allowed_marks(change),
        alters_routes=is_local
        or change.policy is not None
        or bool(change.egresses or change.lines),
    )


def hosts_touched(change: Change) -> set[str]:
    """Return the addresses whose rule, limit or binding the change touches."""
    tables = (change.hosts, change.limits, change.bindings)
    keys = {k for each in tables for k in (*each.put, *each.drop)}
    return {key for key in keys if "/" not in key}  # CIDR rules have limits, too


def touches_networks(change: Change) -> bool:
    """True if the change touches a CIDR rule or its limit."""
    return bool(change.nets) or any("/" in k for k in (*change.limits.put, *change.limits.drop))


def is_more_than_hosts(change: Change) -> bool:
    """True if the change touches more of the nftables table than single clients."""
    tables = change.nets or change.instances or change.groups or change.egresses or change.lines
    return bool(tables or change.bindings or change.neighbours) or change.whitelist is not None


def changes_allowed_marks(change: Change) -> bool:
    """True if the change alters more than the marks of hosts in the judgement of flows."""
    tables = change.nets or change.groups
    return bool(tables) or change.policy is not None or change.whitelist is not None

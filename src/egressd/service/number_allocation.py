"""The numbers that groups and interfaces are given when they are first named, and nodes' ids.

Marks and routing tables are made from them. Once given, a number stays with its name, so that no
packet of an old flow can meet another target under its mark. A node's id is given again only once
all have been used, and then long after it became free.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from egressd.model.desired import ROW_TABLES, DesiredState, Edit, prefix_of
from egressd.model.errors import Invalid
from egressd.model.faults import fault
from egressd.model.names import AUTO, GROUP_PREFIX, INTERFACE_PREFIX
from egressd.model.nouns import (
    AlertChannel,
    Line,
    Node,
    ProxyService,
    Rule,
    Settings,
    Subscription,
    TargetGroup,
    Whitelist,
)
from egressd.model.subscriptions import NODES_MAX
from egressd.planner.nodes import settings_of
from egressd.planner.registry import ENGINE_NUMBER_MAX, PLANNED_EGRESS_MAX

_HIGHEST: Final = {GROUP_PREFIX: ENGINE_NUMBER_MAX, INTERFACE_PREFIX: PLANNED_EGRESS_MAX}


def numbered(state: DesiredState, edits: Sequence[Edit]) -> list[Edit]:
    """Return `edits`, after those that number every group and interface that they name first.

    Raises Invalid if all numbers are used up.
    """
    return [*_numbers(state, (edit.after for edit in edits)), *edits]


def unnumbered(state: DesiredState) -> list[Edit]:
    """Return the edits that number unnumbered names of the state. O(n). Raises Invalid.

    There are some if a backup was restored without a service, onto another device's database.
    """
    rows = chain.from_iterable(getattr(state, table).values() for table in ROW_TABLES)
    return _numbers(state, chain(rows, (state.whitelist, state.settings)))


def fresh_node_ids(state: DesiredState) -> Iterator[int]:
    """Yield ids for the new nodes of one change: those that no node has ever had, then those that
    none has now.

    A list whose nodes are all others at each fetch, 5,000 in ten minutes, uses all ids up in three
    months. From then on each revision begins at a place of its own: if each change takes as many,
    an id is given again after 13,000 changes at the earliest.
    """
    first = state.next_id("nodes")
    yield from range(first, ENGINE_NUMBER_MAX + 1)
    place = state.revision * NODES_MAX
    for number in range(place, place + ENGINE_NUMBER_MAX):
        node_id = number % ENGINE_NUMBER_MAX + 1
        if node_id < first and node_id not in state.nodes:
            yield node_id


def _numbers(state: DesiredState, rows: Iterable[object]) -> list[Edit]:
    fresh: dict[str, int] = {}
    last = {prefix: state.next_id(prefix) - 1 for prefix in _HIGHEST}
    for row in rows:
        for name in _names(row):
            if name in state.numbers or name in fresh:
                continue
            prefix = prefix_of(name)
            last[prefix] += 1
            if last[prefix] > _HIGHEST[prefix]:
                most = _HIGHEST[prefix]
                raise Invalid(fault("", "names-used-up", name=name, most=most, prefix=prefix))
            fresh[name] = last[prefix]
    return [Edit("numbers", name, number) for name, number in fresh.items()]


def _names(row: object) -> Iterator[str]:
    """Yield the groups and interfaces that a row names, with their prefixes."""
    match row:
        case (
            Rule(target_node=target)
            | Whitelist(node=target)
            | Settings(unmanaged=target)
            | AlertChannel(via=target)
            | Subscription(via=target)
        ):
            if target.startswith((GROUP_PREFIX, INTERFACE_PREFIX)):
                yield target
        case TargetGroup(name=name, members=members):
            yield GROUP_PREFIX + name
            for member in members:
                if member.startswith((GROUP_PREFIX, INTERFACE_PREFIX)):
                    yield member
        case Node(group=group, change_ip_via=via):
            if group:
                yield GROUP_PREFIX + group
            if via.startswith(INTERFACE_PREFIX):
                yield via
            if interface := settings_of(row).interface_name:
                yield INTERFACE_PREFIX + interface
        case ProxyService(outbound_interface=interface):
            yield INTERFACE_PREFIX + interface
        case Line(interface=interface) if interface != AUTO:
            yield INTERFACE_PREFIX + interface

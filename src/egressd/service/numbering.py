"""The numbers that groups and interfaces are given when they are first named.

Marks and routing tables are made from them. Once given, a number stays with its name, so
that no packet of an old flow can meet another target under its mark.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Invalid
from egressd.model.names import AUTO, GROUP_PREFIX, INTERFACE_PREFIX
from egressd.model.nouns import Line, Node, ProxyService, Rule, Settings, Whitelist
from egressd.planner.documents import settings_of
from egressd.planner.registry import ENGINE_NUMBER_MAX, PLANNED_EGRESS_MAX

_HIGHEST: Final = {GROUP_PREFIX: ENGINE_NUMBER_MAX, INTERFACE_PREFIX: PLANNED_EGRESS_MAX}


def numbered(state: DesiredState, edits: Sequence[Edit]) -> list[Edit]:
    """`edits`, after those that number every group and interface that they name first.

    Raises Invalid when all numbers are given away.
    """
    fresh: dict[str, int] = {}
    last = {prefix: state.next_id(prefix) - 1 for prefix in _HIGHEST}
    for edit in edits:
        for name in _names(edit.after):
            if name in state.numbers or name in fresh:
                continue
            prefix = GROUP_PREFIX if name.startswith(GROUP_PREFIX) else INTERFACE_PREFIX
            last[prefix] += 1
            if last[prefix] > _HIGHEST[prefix]:
                raise Invalid(
                    f"{name!r} is one name too many: {_HIGHEST[prefix]} that begin with "
                    f"{prefix} have been used on this device"
                )
            fresh[name] = last[prefix]
    return [*(Edit("numbers", name, number) for name, number in fresh.items()), *edits]


def _names(row: object) -> Iterator[str]:
    """The groups and interfaces that a row names, with their prefixes."""
    match row:
        case Rule(target_node=target) | Whitelist(node=target) | Settings(unmanaged=target):
            if target.startswith((GROUP_PREFIX, INTERFACE_PREFIX)):
                yield target
        case Node(group=group):
            if group:
                yield GROUP_PREFIX + group
            if interface := settings_of(row).interface_name:
                yield INTERFACE_PREFIX + interface
        case ProxyService(outbound_interface=interface):
            yield INTERFACE_PREFIX + interface
        case Line(interface=interface) if interface != AUTO:
            yield INTERFACE_PREFIX + interface

"""Warnings for the operator after a change: the clients that it blocks.

A change may name a target that does not exist. Its clients are then blocked, so the answer to the
change must say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from egressd.formats.config_json import read_config
from egressd.model.desired import DesiredState, Edit
from egressd.model.names import GROUP_PREFIX, INTERFACE_PREFIX, parse_target
from egressd.model.nouns import Line, Node, ProxyService, Rule, Whitelist
from egressd.planner.nodes import fault_of, settings_of
from egressd.planner.targets import dial_problem
from egressd.planner.whitelist_entries import entries_of, has_entries
from egressd.service.reachability import why_blocked

_UNKNOWN_SHOWN = 10  # names in a warning


def consequences(
    before: DesiredState, after: DesiredState, edits: Sequence[Edit]
) -> tuple[str, ...]:
    """Return the sentences about a change: `edits` lead from `before` to `after`."""
    targets = dict.fromkeys(
        target for edit in edits for target in _targets_touched(before, after, edit)
    )
    found = {target: why_blocked(after, parse_target(target)) for target in targets}
    reasons = {target: reason for target, reason in found.items() if reason is not None}
    through = _nodes_through(after) if reasons else Counter()
    notes = [
        note
        for target, reason in reasons.items()
        for note in _notes(after, target, reason, through[target])
    ]
    if any(edit.table in ("whitelist", "settings") for edit in edits):
        notes += _inactive_domains(after)
    notes += _faulty_nodes(edits)
    notes += _nodes_without_a_way(after, edits)
    notes += _unknown_fields(before, edits)
    return tuple(notes)


def _faulty_nodes(edits: Sequence[Edit]) -> Iterator[str]:
    """Yield a sentence for each node of a backup that this version does not accept."""
    for edit in edits:
        if isinstance(edit.after, Node) and (fault := fault_of(edit.after)):
            yield f"the node {edit.after.name} does not work: {fault}"


def _nodes_without_a_way(state: DesiredState, edits: Sequence[Edit]) -> Iterator[str]:
    """Yield a sentence for each node that can no longer dial through a node that was changed."""
    changed = {e.after.name for e in edits if e.table == "nodes" and e.after is not None}
    if not changed:
        return
    for node in state.nodes.values():
        if settings_of(node).dialer_proxy in changed and (reason := dial_problem(state, node)):
            yield f"the node {node.name} does not work, as {reason}"


def _unknown_fields(before: DesiredState, edits: Sequence[Edit]) -> Iterator[str]:
    """Yield a sentence about fields without effect that nodes have and did not have before."""
    unknown: set[str] = set()
    for edit in edits:
        if isinstance(edit.after, Node):
            unknown.update(_unknown_of(edit.after) - _unknown_of(before.nodes.get(edit.after.id)))
    if unknown:
        more = len(unknown) - _UNKNOWN_SHOWN
        shown = ", ".join(sorted(unknown)[:_UNKNOWN_SHOWN]) + (
            f" and {more} more" if more > 0 else ""
        )
        yield f"these fields of config_json were kept and have no effect: {shown}"


def _unknown_of(node: Node | None) -> set[str]:
    if node is None or fault_of(node):
        return set()
    config = read_config(node.protocol, node.config_json)
    return {*config.unknown, *config.idle}


def _targets_touched(before: DesiredState, after: DesiredState, edit: Edit) -> Iterator[str]:
    """Yield the targets that the edit removes, or newly sends traffic to."""
    match before.row(edit.table, edit.key):
        case Node(name=name, group=group):
            yield name
            if group:
                yield GROUP_PREFIX + group
        case Line(name=name):
            yield INTERFACE_PREFIX + name
    match edit.after:
        case Rule(is_enabled=True, target_node=target) | Whitelist(node=target):
            yield target
        case Node() as node if interface := settings_of(node).interface_name:
            yield INTERFACE_PREFIX + interface
        case ProxyService(is_enabled=True, outbound_interface=interface):
            yield INTERFACE_PREFIX + interface


def _notes(state: DesiredState, target: str, reason: str, nodes_through: int) -> Iterator[str]:
    if number := state.target_uses.get(target, 0):
        yield f"{_counted(number, 'rule is', 'rules are')} blocked, as {reason}"
    if target == state.settings.unmanaged:
        yield f"clients without a rule are blocked, as {reason}"
    if target == state.whitelist.node and has_entries(state.whitelist):
        yield f"the whitelist's destinations are blocked, as {reason}"
    if nodes_through:
        yield f"{_counted(nodes_through, 'node does', 'nodes do')} not work, as {reason}"
    parsed = parse_target(target)
    if parsed.kind == "interface":
        services = state.services.values()
        number = sum(s.is_enabled and s.outbound_interface == parsed.name for s in services)
        if number:
            who = _counted(number, "proxy service does", "proxy services do")
            yield f"{who} not work, as {reason}"


def _nodes_through(state: DesiredState) -> Counter[str]:
    """Return target (a node or an interface) -> the number of nodes that are dialled through it."""
    found: Counter[str] = Counter()
    for node in state.nodes.values():
        settings = settings_of(node)
        if settings.dialer_proxy:
            found[settings.dialer_proxy] += 1
        if settings.interface_name:
            found[INTERFACE_PREFIX + settings.interface_name] += 1
    return found


def _inactive_domains(state: DesiredState) -> Iterator[str]:
    number = len(entries_of(state.whitelist).domains)
    if number and not state.settings.sniff_domains:
        who = _counted(number, "domain entry is", "domain entries are")
        yield f"{who} inactive, as domain recognition is switched off"


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"

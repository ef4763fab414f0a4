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
from egressd.model.nouns import Line, Node, ProxyService, Rule, TargetGroup, Whitelist
from egressd.model.wording import Sentence, say
from egressd.planner.nodes import fault_of, settings_of
from egressd.planner.targets import dial_problem
from egressd.planner.whitelist_entries import entries_of, has_entries
from egressd.service.reachability import why_blocked

_UNKNOWN_SHOWN = 10  # names in a warning


def consequences(
    before: DesiredState, after: DesiredState, edits: Sequence[Edit]
) -> tuple[Sentence, ...]:
    """Return the sentences about a change: `edits` lead from `before` to `after`."""
    targets = dict.fromkeys(
        target for edit in edits for target in _targets_touched(before, after, edit)
    )
    found = {target: why_blocked(after, parse_target(target)) for target in targets}
    reasons = {target: reason for target, reason in found.items() if reason}
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


def _faulty_nodes(edits: Sequence[Edit]) -> Iterator[Sentence]:
    """Yield a sentence for each node of a backup that this version does not accept."""
    for edit in edits:
        if isinstance(edit.after, Node) and (fault := fault_of(edit.after)):
            yield say("node-unfit", name=edit.after.name, reason=fault)


def _nodes_without_a_way(state: DesiredState, edits: Sequence[Edit]) -> Iterator[Sentence]:
    """Yield a sentence for each node that can no longer dial through a node that was changed."""
    changed = {e.after.name for e in edits if e.table == "nodes" and e.after is not None}
    if not changed:
        return
    for node in state.nodes.values():
        if settings_of(node).dialer_proxy in changed and (reason := dial_problem(state, node)):
            yield say("node-fails-as", name=node.name, reason=reason)


def _unknown_fields(before: DesiredState, edits: Sequence[Edit]) -> Iterator[Sentence]:
    """Yield a sentence about fields without effect that nodes have and did not have before."""
    unknown: set[str] = set()
    for edit in edits:
        if isinstance(edit.after, Node):
            unknown.update(_unknown_of(edit.after) - _unknown_of(before.nodes.get(edit.after.id)))
    if unknown:
        more = len(unknown) - _UNKNOWN_SHOWN
        fields = tuple(sorted(unknown)[:_UNKNOWN_SHOWN])
        if more > 0:
            yield say("fields-unused-and-more", fields=fields, n=more)
        else:
            yield say("fields-unused", fields=fields)


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
        case TargetGroup(name=name):
            yield GROUP_PREFIX + name
    match edit.after:
        case Rule(is_enabled=True, target_node=target) | Whitelist(node=target):
            yield target
        case Node() as node if interface := settings_of(node).interface_name:
            yield INTERFACE_PREFIX + interface
        case ProxyService(is_enabled=True, outbound_interface=interface):
            yield INTERFACE_PREFIX + interface


def _notes(
    state: DesiredState, target: str, reason: Sentence, nodes_through: int
) -> Iterator[Sentence]:
    if number := state.target_uses.get(target, 0):
        yield say("rules-blocked-as", n=number, reason=reason)
    if target == state.settings.unmanaged:
        yield say("unruled-blocked-as", reason=reason)
    if target == state.whitelist.node and has_entries(state.whitelist):
        yield say("whitelist-blocked-as", reason=reason)
    if nodes_through:
        yield say("nodes-fail-as", n=nodes_through, reason=reason)
    parsed = parse_target(target)
    if parsed.kind == "interface":
        services = state.services.values()
        number = sum(s.is_enabled and s.outbound_interface == parsed.name for s in services)
        if number:
            yield say("services-fail-as", n=number, reason=reason)


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


def _inactive_domains(state: DesiredState) -> Iterator[Sentence]:
    number = len(entries_of(state.whitelist).domains)
    if number and not state.settings.sniff_domains:
        yield say("domains-inactive", n=number)

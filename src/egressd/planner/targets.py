"""The meaning of a target: its mark, its nodes, the paths to them, and their egresses."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise

from egressd.model.bounds import RELAYS_MAX
from egressd.model.desired import DesiredState
from egressd.model.names import GROUP_PREFIX, INTERFACE_PREFIX, REJECT, TargetName, parse_target
from egressd.model.nouns import Node
from egressd.model.wording import NONE, Sentence, say
from egressd.planner import outbounds, whitelist_entries
from egressd.planner.nodes import DialPath, fault_of, outbound_of, settings_of
from egressd.planner.registry import MARK_DIRECT, MARK_REJECT, group_mark, node_mark
from egressd.planner.topology import interface_mark


def mark_of(state: DesiredState, target: str) -> int:
    """Return the mark of a target as the API writes it; a target that does not exist blocks."""
    parsed = parse_target(target)
    match parsed.kind:
        case "direct":
            return MARK_DIRECT
        case "node":
            node_id = state.node_by_name.get(parsed.name)
            return MARK_REJECT if node_id is None else node_mark(node_id)
        case "group":
            number = state.numbers.get(target)
            known = number is not None and parsed.name in state.group_sizes
            return group_mark(number) if known and number is not None else MARK_REJECT
        case "interface":
            number = state.numbers.get(target)
            return MARK_REJECT if number is None else interface_mark(parsed.name, number)
        case _:
            return MARK_REJECT


def ruled_targets(state: DesiredState) -> set[str]:
    """Return the targets that rules or the whitelist send traffic to, as the API writes them.

    REJECT is always one of them: it is the target of a rule whose own target is gone.
    """
    return {REJECT, *_named_targets(state)}


def _named_targets(state: DesiredState) -> set[str]:
    named = set(state.target_uses)
    if whitelist_entries.has_entries(state.whitelist):
        named.add(state.whitelist.node)
    return named


def is_ruled(state: DesiredState, target: str) -> bool:
    """True if `target` is one of `ruled_targets`. O(1)."""
    return (
        target == REJECT
        or target in state.target_uses
        or (target == state.whitelist.node and whitelist_entries.has_entries(state.whitelist))
    )


def used_targets(state: DesiredState) -> set[str]:
    """Return the targets that traffic can be sent to at the moment, as the API writes them."""
    return {*_named_targets(state), state.settings.unmanaged}


def alert_targets(state: DesiredState) -> set[str]:
    """Return the targets that alerts are sent by, as the API writes them."""
    return {channel.via for channel in state.alert_channels.values() if channel.is_enabled}


def serves(state: DesiredState, node: Node) -> bool:
    """True if rules or the whitelist send traffic to `node`, by itself or as one of its group."""
    return is_ruled(state, node.name) or (
        node.group != "" and is_ruled(state, GROUP_PREFIX + node.group)
    )


def nodes_of(state: DesiredState, targets: Iterable[str]) -> list[Node]:
    """Return the nodes that are targets, or in a group that is one. O(nodes) if there is a
    group.
    """
    parsed = [parse_target(target) for target in targets]
    named = {target.name for target in parsed if target.kind == "node"}
    grouped = {t.name for t in parsed if t.kind == "group" and t.name in state.group_sizes}
    found = [node for name in named if (node := state.node_named(name))]
    if grouped:
        members = (node for node in state.nodes.values() if node.group in grouped)
        found += [node for node in members if node.name not in named]
    return found


def dial_paths(state: DesiredState, target: TargetName) -> tuple[DialPath, ...]:
    """Return the paths to the nodes of a target; those that miss a relay or an interface are left
    out.
    """
    if target.kind == "node":
        node = state.node_named(target.name)
        members = [] if node is None else [node]
    elif target.kind == "group":
        members = state.group_members(target.name)
    else:
        members = []
    return tuple(path for node in members if (path := dial_path(state, node)) is not None)


def dial_path(state: DesiredState, node: Node) -> DialPath | None:
    """Return the node and the relays it dials through, outermost last; None if there is no such
    path: see `dial_problem`.
    """
    hops, problem = _hops(state, node)
    if problem:
        return None
    name = settings_of(hops[-1]).interface_name
    mark = mark_of(state, INTERFACE_PREFIX + name) if name else MARK_DIRECT
    return None if mark == MARK_REJECT else DialPath(hops, mark, name)


def dial_problem(state: DesiredState, node: Node) -> Sentence:
    """Return why the relays of `node` do not lead out, in plain words; empty if they do."""
    return _hops(state, node)[1]


def _hops(state: DesiredState, node: Node) -> tuple[tuple[Node, ...], Sentence]:
    """Return the node, its relay, that one's relay and so on; and why they do not lead out."""
    hops = [node]
    while relay_name := settings_of(hops[-1]).dialer_proxy:
        relay = state.node_named(relay_name)
        if relay is None:
            return tuple(hops), say("relay-gone", name=relay_name, other=hops[-1].name)
        if relay in hops:
            return tuple(hops), say("relays-in-circle", name=relay_name)
        if len(hops) > RELAYS_MAX:
            return tuple(hops), say("too-many-relays", most=RELAYS_MAX)
        hops.append(relay)
    for hop in hops:
        if fault := fault_of(hop):
            return tuple(hops), say("hop-unfit", name=hop.name, reason=fault)
    for hop, relay in pairwise(hops):
        if relay.protocol in outbounds.TUNNELS:
            return tuple(hops), say("hop-tunnel", name=relay.name, protocol=relay.protocol)
        if hop.protocol in outbounds.OVER_UDP and not outbound_of(relay).udp:
            return tuple(hops), say(
                "hop-without-udp", name=hop.name, protocol=hop.protocol, relay=relay.name
            )
    return tuple(hops), NONE


def interfaces_of(state: DesiredState, targets: Collection[str]) -> set[str]:
    """Return the interfaces that targets name: directly, or as the egress of their nodes."""
    parsed = map(parse_target, targets)
    named = {target.name for target in parsed if target.kind == "interface"}
    paths = (dial_path(state, node) for node in nodes_of(state, targets))
    last_hops = (path.hops[-1] for path in paths if path is not None)
    return named | {name for hop in last_hops if (name := settings_of(hop).interface_name)}

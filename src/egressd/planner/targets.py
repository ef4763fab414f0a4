"""The meaning of a target: its mark, its nodes, the paths to them, and their egresses."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from itertools import pairwise
from typing import Final

from egressd.model.bounds import RELAYS_MAX
from egressd.model.desired import DesiredState
from egressd.model.names import GROUP_PREFIX, INTERFACE_PREFIX, REJECT, TargetName, parse_target
from egressd.model.nouns import Node
from egressd.model.wording import NONE, Sentence, say
from egressd.planner import outbounds, whitelist_entries
from egressd.planner.name_filters import found_in
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
            known = number is not None and state.group_exists(parsed.name)
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


def errand_targets(state: DesiredState) -> set[str]:
    """Return the targets that alerts are sent and lists are fetched by, as the API writes them."""
    alerts = {channel.via for channel in state.alert_channels.values() if channel.is_enabled}
    return alerts | {subscription.via for subscription in state.subscriptions.values()}


def change_ip_targets(state: DesiredState) -> set[str]:
    """Return the targets by which pages are asked that have nodes leave by another address."""
    return {n.change_ip_via or n.name for n in state.nodes.values() if n.change_ip_url}


def serves(state: DesiredState, node: Node) -> bool:
    """True if rules or the whitelist send traffic to `node`, by itself or as a member of a group.
    O(groups with settings).
    """
    return (
        is_ruled(state, node.name)
        or (node.group != "" and is_ruled(state, GROUP_PREFIX + node.group))
        or any(
            is_ruled(state, GROUP_PREFIX + group.name)
            and node.name in members_of(state, group.name)
            for group in state.groups.values()
        )
    )


def members_of(state: DesiredState, group: str) -> tuple[str, ...]:
    """Return the members of a group as targets, in order and each once. The members of a group
    among them stand in its place; one that does not exist is left out. O(nodes).
    """
    return _members(state).of(group)


def reached(state: DesiredState, targets: Iterable[str]) -> set[str]:
    """Return `targets`, and the members of those that are groups."""
    found = set(targets)
    for target in [*found]:
        parsed = parse_target(target)
        if parsed.kind == "group" and state.group_exists(parsed.name):
            found.update(members_of(state, parsed.name))
    return found


class _Members:
    """The members of the groups of one state, each found once. Those of `before` are looked at for
    what filters have found in names that are the same.
    """

    def __init__(self, state: DesiredState, before: _Members | None) -> None:
        self._state = state
        self._nodes = sorted(
            (node_id, name, group) for node_id, (name, group) in state.node_labels.items()
        )
        self._bearing: dict[str, list[int]] = {}
        for node_id, _, group in self._nodes:
            if group:
                self._bearing.setdefault(group, []).append(node_id)
        self._found: dict[str, tuple[str, ...]] = {}
        self._filtered: dict[str, frozenset[int]] = {}
        """Pattern -> the ids of nodes in whose names it is found."""
        self._filtered_before: dict[str, frozenset[int]] = {}
        self._renamed: frozenset[int] = frozenset()
        """Ids of nodes that are new, gone, or have another name than in the state before."""
        if before is not None:
            self._filtered_before = before._filtered
            self._renamed = _renamed(before._state.node_labels, state.node_labels)

    def is_of(self, state: DesiredState) -> bool:
        """True if the groups of `state` have the same members."""
        mine = self._state
        return mine.node_labels is state.node_labels and mine.groups is state.groups

    def of(self, group: str) -> tuple[str, ...]:
        """Return the members of a group."""
        found = self._found.get(group)
        if found is None:
            found = self._found[group] = tuple(dict.fromkeys(self._each(group, set())))
        return found

    def _each(self, group: str, passed: set[str]) -> Iterator[str]:
        """Yield the members of a group, but not those of groups in `passed`, which is added to:
        a circle ends, and a group that is in many others is looked at once.
        """
        passed.add(group)
        state, settings = self._state, self._state.group_named(group)
        if settings is not None:
            for target in settings.members:
                parsed = parse_target(target)
                if parsed.kind == "group":
                    if parsed.name not in passed:
                        yield from self._each(parsed.name, passed)
                elif parsed.kind != "reject" and state.target_exists(parsed):
                    yield target
        bearing = self._bearing.get(group, ())
        filtered = self._matching(settings.filter) if settings and settings.filter else ()
        for node_id in sorted({*bearing, *filtered}):
            yield state.node_labels[node_id][0]

    def _matching(self, pattern: str) -> frozenset[int]:
        """Return the ids of nodes in whose names a pattern is found."""
        found = self._filtered.get(pattern)
        if found is None:
            before = self._filtered_before.get(pattern)
            if before is None:
                found = frozenset(found_in(pattern, self._all_names))
            else:
                found = (before - self._renamed).union(found_in(pattern, self._new_names))
            self._filtered[pattern] = found
        return found

    @cached_property
    def _all_names(self) -> list[tuple[int, bytes]]:
        return [(node_id, name.encode()) for node_id, name, _ in self._nodes]

    @cached_property
    def _new_names(self) -> list[tuple[int, bytes]]:
        labels = self._state.node_labels
        return [(i, labels[i][0].encode()) for i in self._renamed if i in labels]


def _renamed(
    before: Mapping[int, tuple[str, str]], after: Mapping[int, tuple[str, str]]
) -> frozenset[int]:
    """Return the ids that have another name in one of two states than in the other."""
    if before is after:
        return frozenset()
    none = ("", "")
    return frozenset(
        i for i in {*before, *after} if before.get(i, none)[0] != after.get(i, none)[0]
    )


_RECENT_MAX: Final = 4
_recent: list[_Members] = []
"""The members in the states before and after a change, which are looked up many times."""


def _members(state: DesiredState) -> _Members:
    for each in _recent:
        if each.is_of(state):
            return each
    made = _Members(state, _recent[0] if _recent else None)
    _recent.insert(0, made)
    del _recent[_RECENT_MAX:]
    return made


def nodes_of(state: DesiredState, targets: Iterable[str]) -> list[Node]:
    """Return the nodes that are targets, or in a group that is one. O(nodes) if there is a
    group.
    """
    names = dict.fromkeys(reached(state, targets))
    return [node for name in names if (node := state.node_named(name))]


def dial_paths(state: DesiredState, target: TargetName) -> tuple[DialPath, ...]:
    """Return the paths to the nodes of a target; those that miss a relay or an interface are left
    out.
    """
    names: Iterable[str] = ()
    if target.kind == "node":
        names = (target.name,)
    elif target.kind == "group":
        names = members_of(state, target.name)
    nodes = (node for name in names if (node := state.node_named(name)) is not None)
    return tuple(path for node in nodes if (path := dial_path(state, node)) is not None)


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
        if hop.gone_at:
            return tuple(hops), say("node-gone", name=hop.name, at=hop.gone_at)
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
    parsed = map(parse_target, reached(state, targets))
    named = {target.name for target in parsed if target.kind == "interface"}
    paths = (dial_path(state, node) for node in nodes_of(state, targets))
    last_hops = (path.hops[-1] for path in paths if path is not None)
    return named | {name for hop in last_hops if (name := settings_of(hop).interface_name)}

"""A few edits of the desired state turned into the change of the plan.

The law that the tests check: applying ``plan_change(before, after, …)`` to the plan compiled from
``before`` gives the plan compiled from ``after``. The reason for this module: one host's rule among
10,000 must cost one entry, not a compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from egressd.model.desired import DesiredState, Edit
from egressd.model.device import Resolvers
from egressd.model.instances import Instance
from egressd.model.names import GROUP_PREFIX, parse_target
from egressd.model.nouns import Rule
from egressd.model.plan import Change, Egress, Group, Limit, Patch, patch_between
from egressd.planner import compile as compiled
from egressd.planner import targets

V = TypeVar("V")


def plan_change(
    before: DesiredState,
    after: DesiredState,
    edits: Sequence[Edit],
    resolvers: Resolvers,
    *,
    is_leased: bool = False,
) -> Change:
    """Return the change of the plan for `edits`, which lead from `before` to `after`.

    `is_leased`: the device is one of several members of a site, before and after.

    Host rules cost O(1) each. A CIDR rule costs O(rules), an edit of a node O(targets in use), and
    O(rules) only if a target appears or disappears.
    """
    tables = {edit.table for edit in edits}
    if tables <= {"rules", "numbers"}:
        return _rule_change(before, after, edits, resolvers)
    moved = _redefined_targets(before, after, edits)
    touched = _rules_touched(before, after, edits)
    if moved:
        touched += [r for r in after.rules.values() if r.target_node in moved]
    return Change(
        base=before.revision,
        revision=after.revision,
        policy=_if_new(before, after, lambda s: compiled.policy(s, resolvers, is_leased=is_leased)),
        whitelist=_if_new(before, after, compiled.whitelist),
        delay_url=_if_new(before, after, lambda s: s.settings.delay_url),
        hosts=_hosts(before, after, touched),
        nets=_nets(before, after, touched),
        instances=patch_between(_instances(before, resolvers), _instances(after, resolvers)),
        groups=_groups(before, after),
        egresses=_egresses(before, after, resolvers),
        limits=_limits(before, after, touched),
        lines=patch_between(compiled.lines(before), compiled.lines(after)),
        bindings=_bindings(before, after, touched),
        neighbours=_neighbours(before, after, edits),
    )


def _instances(state: DesiredState, resolvers: Resolvers) -> dict[str, Instance]:
    return {
        **compiled.instances(state, resolvers, targets.ruled_targets(state)),
        **compiled.unmanaged_instance(state, resolvers),
        **compiled.services(state, resolvers),
    }


def _rule_change(
    before: DesiredState, after: DesiredState, edits: Sequence[Edit], resolvers: Resolvers
) -> Change:
    touched = _rules_touched(before, after, edits)
    names = {rule.target_node for rule in touched}
    switched = {n for n in names if targets.is_ruled(before, n) != targets.is_ruled(after, n)}
    return Change(
        base=before.revision,
        revision=after.revision,
        whitelist=_if_new(before, after, compiled.whitelist) if switched else None,
        hosts=_hosts(before, after, touched),
        nets=_nets(before, after, touched),
        instances=_switched_instances(before, after, switched, resolvers),
        groups=_groups(before, after) if any(map(_is_group, switched)) else Patch(),
        egresses=_switched_egresses(before, after, switched, resolvers),
        limits=_limits(before, after, touched),
        bindings=_bindings(before, after, touched),
    )


def _neighbours(before: DesiredState, after: DesiredState, edits: Iterable[Edit]) -> Patch[str]:
    keys = {int(edit.key) for edit in edits if edit.table == "nodes"}
    old, new = (
        [state.nodes[key] for key in keys if key in state.nodes] for state in (before, after)
    )
    return patch_between(compiled.neighbours(old), compiled.neighbours(new))


def _switched_instances(
    before: DesiredState, after: DesiredState, switched: set[str], resolvers: Resolvers
) -> Patch[Instance]:
    """Return the patch for targets that came into use or went out of it; nodes stay unchanged."""
    if switched and after.groups:  # a target may be in use as a member of a group, too
        return patch_between(_instances(before, resolvers), _instances(after, resolvers))
    used = [name for name in switched if targets.is_ruled(after, name)]
    nodes = [n for n in targets.nodes_of(after, switched) if targets.serves(after, n)]
    put = {
        **compiled.sniffers(after, resolvers, used),
        **compiled.askers(after, resolvers, used),
        **compiled.nodes(after, resolvers, nodes),
    }
    # Keys in the state before: reverting a step also removes the number that an interface got in
    # it.
    gone = switched.difference(used)
    left = {key for t in gone for key in compiled.instance_keys(before, t, resolvers)}
    return Patch(put=put, drop=tuple(sorted(left - put.keys())))


def _switched_egresses(
    before: DesiredState, after: DesiredState, switched: set[str], resolvers: Resolvers
) -> Patch[Egress]:
    """O(targets in use), but only if a target names the interface that it leaves by: few do."""
    if not targets.interfaces_of(after, switched):
        return Patch()
    return _egresses(before, after, resolvers)


def _groups(before: DesiredState, after: DesiredState) -> Patch[Group]:
    return patch_between(
        compiled.groups(before, targets.ruled_targets(before)),
        compiled.groups(after, targets.ruled_targets(after)),
    )


def _is_group(target: str) -> bool:
    return parse_target(target).kind == "group"


def _rules_touched(before: DesiredState, after: DesiredState, edits: Iterable[Edit]) -> list[Rule]:
    """Return every version, old and new, of the rules that `edits` name."""
    keys = {int(edit.key) for edit in edits if edit.table == "rules"}
    versions = [state.rules.get(key) for state in (before, after) for key in keys]
    return [rule for rule in versions if rule is not None]


def _redefined_targets(
    before: DesiredState, after: DesiredState, edits: Iterable[Edit]
) -> set[str]:
    """Return the targets whose mark changed: nodes and groups that came, went or were renamed."""
    names: set[str] = set()
    for edit in edits:
        if edit.table == "numbers":
            names.add(str(edit.key))
        if edit.table == "groups":
            rows = (state.groups.get(int(edit.key)) for state in (before, after))
            names.update(GROUP_PREFIX + row.name for row in rows if row is not None)
        if edit.table != "nodes":
            continue
        for state in (before, after):
            node = state.nodes.get(int(edit.key))
            if node is not None:
                names.add(node.name)
                names.add(GROUP_PREFIX + node.group)
    return {n for n in names if targets.mark_of(before, n) != targets.mark_of(after, n)}


def _hosts(before: DesiredState, after: DesiredState, touched: Iterable[Rule]) -> Patch[int]:
    addresses = {rule.ip for rule in touched if rule.is_host}
    return patch_between(
        compiled.hosts(before, _rules_at(before, addresses)),
        compiled.hosts(after, _rules_at(after, addresses)),
    )


def _limits(before: DesiredState, after: DesiredState, touched: Iterable[Rule]) -> Patch[Limit]:
    addresses = {rule.ip for rule in touched}
    return patch_between(
        compiled.limits(_rules_at(before, addresses)),
        compiled.limits(_rules_at(after, addresses)),
    )


def _bindings(before: DesiredState, after: DesiredState, touched: Iterable[Rule]) -> Patch[str]:
    addresses = {rule.ip for rule in touched}
    return patch_between(
        compiled.bindings(_rules_at(before, addresses)),
        compiled.bindings(_rules_at(after, addresses)),
    )


def _rules_at(state: DesiredState, addresses: Iterable[str]) -> list[Rule]:
    keys = (state.rule_by_ip.get(ip) for ip in addresses)
    return [state.rules[key] for key in keys if key is not None]


def _nets(before: DesiredState, after: DesiredState, touched: Iterable[Rule]) -> Patch[int]:
    if all(rule.is_host for rule in touched):
        return Patch()
    return patch_between(compiled.nets(before), compiled.nets(after))


def _egresses(before: DesiredState, after: DesiredState, resolvers: Resolvers) -> Patch[Egress]:
    return patch_between(compiled.egresses(before, resolvers), compiled.egresses(after, resolvers))


def _if_new(
    before: DesiredState, after: DesiredState, table: Callable[[DesiredState], V]
) -> V | None:
    wanted = table(after)
    return wanted if wanted != table(before) else None

"""The references that a rename moves, so that they keep naming the thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from egressd.formats.config_json import with_settings
from egressd.model.desired import DesiredState, Edit
from egressd.model.errors import Invalid
from egressd.model.faults import fault
from egressd.model.names import INTERFACE_PREFIX
from egressd.model.nouns import Node, TargetGroup
from egressd.planner.nodes import settings_of


def rename_node(state: DesiredState, old: str, new: str, now: str) -> Iterator[Edit]:
    """Yield the edits of references to the node `old`, without the node itself. O(rules + nodes).

    Raises Invalid.
    """
    for edit in rename_nodes(state, {old: new}, now):
        if edit.table != "nodes" or edit.after.name != old:
            yield edit


def rename_nodes(state: DesiredState, names: Mapping[str, str], now: str) -> Iterator[Edit]:
    """Yield the edits of references to nodes, by their old names, which stay those of the nodes
    themselves. They may exchange their names. O(rules + nodes). Raises Invalid.
    """
    yield from _rename_targets(state, names, now)
    if new := names.get(state.whitelist.node):
        yield Edit("whitelist", 0, msgspec.structs.replace(state.whitelist, node=new))
    for node in state.nodes.values():
        moved = _asked_via(node, names)
        if new := names.get(settings_of(node).dialer_proxy):
            moved = _resettled(moved, dialer_proxy=new)
        if moved is not node:
            yield Edit("nodes", node.id, moved)


def rename_interface(state: DesiredState, old: str, new: str, now: str) -> Iterator[Edit]:
    """Yield the edits of references to the line `old`, without the line itself. O(rules + nodes).

    Raises Invalid.
    """
    targets = {INTERFACE_PREFIX + old: INTERFACE_PREFIX + new}
    yield from _rename_targets(state, targets, now)
    for service in state.services.values():
        if service.outbound_interface == old:
            renamed = msgspec.structs.replace(service, outbound_interface=new)
            yield Edit("services", service.id, renamed)
    for line in state.lines.values():
        if line.interface == old:
            yield Edit("lines", line.id, msgspec.structs.replace(line, interface=new))
    for node in state.nodes.values():
        moved = _asked_via(node, targets)
        if settings_of(node).interface_name == old:
            moved = _resettled(moved, interface_name=new)
        if moved is not node:
            yield Edit("nodes", node.id, moved)


def _resettled(
    node: Node, *, interface_name: str | None = None, dialer_proxy: str | None = None
) -> Node:
    try:
        text = with_settings(
            node.config_json, interface_name=interface_name, dialer_proxy=dialer_proxy
        )
    except Invalid as invalid:
        raise Invalid(
            fault("name", "name-unsuitable", name=node.name, reason=invalid.sentence)
        ) from None
    return msgspec.structs.replace(node, config_json=text)


def _asked_via(node: Node, names: Mapping[str, str]) -> Node:
    """Return the node with a new name of the target by which its address is changed."""
    new = names.get(node.change_ip_via)
    return node if new is None else msgspec.structs.replace(node, change_ip_via=new)


def _rename_targets(state: DesiredState, names: Mapping[str, str], now: str) -> Iterator[Edit]:
    for rule in state.rules.values():
        if new := names.get(rule.target_node):
            moved = msgspec.structs.replace(rule, target_node=new, updated_at=now)
            yield Edit("rules", rule.id, moved)
    for channel in state.alert_channels.values():
        if new := names.get(channel.via):
            yield Edit("alert_channels", channel.id, msgspec.structs.replace(channel, via=new))
    for subscription in state.subscriptions.values():
        if new := names.get(subscription.via):
            moved_by = msgspec.structs.replace(subscription, via=new)
            yield Edit("subscriptions", subscription.id, moved_by)
    for group in state.groups.values():
        if not names.keys().isdisjoint(group.members):
            yield Edit("groups", group.id, _with_members(group, names))
    if new := names.get(state.settings.unmanaged):
        yield Edit("settings", 0, msgspec.structs.replace(state.settings, unmanaged=new))


def _with_members(group: TargetGroup, names: Mapping[str, str]) -> TargetGroup:
    """Return the group with other names of members, at their places and with their weights."""
    members = (names.get(member, member) for member in group.members)
    weights = {names.get(name, name): part for name, part in group.weights.items()}
    return msgspec.structs.replace(group, members=tuple(dict.fromkeys(members)), weights=weights)

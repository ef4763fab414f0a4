"""The whole desired state, as a value.

`DesiredState` is immutable: a change makes a new one that shares everything it did not
touch (`immutables.Map`, a hash array mapped trie), in O(log n). So a candidate can be
planned, tried on the kernel and thrown away without undoing anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from immutables import Map

from egressd.model.names import GROUP_PREFIX, INTERFACE_PREFIX, TargetName
from egressd.model.nouns import (
    AlertChannel,
    GroupStrategy,
    Line,
    Node,
    ProxyService,
    Rule,
    Settings,
    Subscription,
    TargetGroup,
    Whitelist,
)
from egressd.model.skeleton import skeleton

K = TypeVar("K")
V = TypeVar("V")


class Edit(msgspec.Struct, frozen=True):
    """One row of the state that a change puts (``after`` set) or removes (``after`` None).

    ``table`` is the `DesiredState` field it belongs to: ``nodes``, ``rules``, ``lines``,
    ``services``, ``alert_channels``, ``groups``, ``subscriptions``, ``numbers`` (key: the name), or
    ``whitelist``, ``settings`` (key 0); and ``last_ids``, for `load`, a restore and the count of
    whitelists: every other edit raises it automatically.
    """

    table: str
    key: int | str
    after: Any


class DesiredState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the operator asked for at one revision.

    ``numbers`` gives each group (``Group_<name>``) and interface (``Interface:<name>``) ever named
    the small integer that its mark and routing table are made from; a number is never given to
    another name. `with_edits` keeps the ``*_by_*`` indexes in step.
    """

    revision: int = 0
    nodes: Map[int, Node] = Map()
    rules: Map[int, Rule] = Map()
    lines: Map[int, Line] = Map()
    services: Map[int, ProxyService] = Map()
    alert_channels: Map[int, AlertChannel] = Map()
    groups: Map[int, TargetGroup] = Map()
    """Groups with settings of their own. Others consist of the nodes that bear their name."""
    subscriptions: Map[int, Subscription] = Map()
    numbers: Map[str, int] = Map()
    whitelist: Whitelist = Whitelist()
    settings: Settings = Settings()
    last_ids: Map[str, int] = Map()
    """Table, or prefix of `numbers` -> the highest id ever given there; ``whitelist`` -> the count
    of whitelists (`whitelist_count`). It never falls."""

    node_by_name: Map[str, int] = Map()
    node_labels: Map[int, tuple[str, str]] = Map()
    """Id -> name and group, by which nodes are members of groups. It is the same object as long as
    no node gets another name or group."""
    rule_by_ip: Map[str, int] = Map()
    line_by_name: Map[str, int] = Map()
    service_by_name: Map[str, int] = Map()
    alert_channel_by_name: Map[str, int] = Map()
    subscription_by_name: Map[str, int] = Map()
    group_by_name: Map[str, int] = Map()
    """Name -> id, of groups with settings of their own."""
    group_sizes: Map[str, int] = Map()
    """Group name -> the number of nodes in it."""
    nodes_like: Map[str, Map[str, None]] = Map()
    groups_like: Map[str, Map[str, None]] = Map()
    """Skeleton of a name (`skeleton`) -> the node names, or group names, that look like it."""
    target_uses: Map[str, int] = Map()
    """``target_node`` -> the number of enabled rules that name it."""

    def with_edits(self, edits: Iterable[Edit], revision: int) -> DesiredState:
        """Return this state after `edits`, as `revision`. Costs O(edits · log n)."""
        edits = list(edits)
        draft: dict[str, Any] = {f: getattr(self, f) for f in self.__struct_fields__}
        for edit in edits:
            match edit.table:
                case "nodes":
                    _edit_node(draft, edit)
                case "rules":
                    _edit_rule(draft, edit)
                case "lines" | "services" | "alert_channels" | "subscriptions":
                    _edit_named(draft, edit.table, _NAME_INDEXES[edit.table], edit)
                case "groups":
                    _edit_group(draft, edit)
                case "numbers":
                    draft["numbers"] = _put(draft["numbers"], edit.key, edit.after)
                case "whitelist" | "settings":
                    draft[edit.table] = edit.after
                case "last_ids":
                    pass  # counted below
                case _:
                    raise ValueError(f"no such table: {edit.table}")
        for name, highest in highest_ids(edits).items():
            if highest > self.last_ids.get(name, 0):
                draft["last_ids"] = draft["last_ids"].set(name, highest)
        draft["revision"] = revision
        return DesiredState(**draft)

    def edits_to(self, other: DesiredState) -> list[Edit]:
        """Return the edits that give this state the nodes, rules, … of `other`. O(n).

        Numbers stay as they are here, because `other` may be another device's. Whether the device
        is stopped or opened stays as well: only a request of its own changes it, never a side
        effect.
        """
        edits: list[Edit] = []
        for name in ROW_TABLES:
            mine, wanted = getattr(self, name), getattr(other, name)
            edits += [Edit(name, key, None) for key in mine if key not in wanted]
            edits += [Edit(name, key, row) for key, row in wanted.items() if mine.get(key) != row]
        if self.whitelist != other.whitelist:
            edits.append(Edit("whitelist", 0, other.whitelist))
        settings = msgspec.structs.replace(
            other.settings, stopped=self.settings.stopped, opened=self.settings.opened
        )
        if self.settings != settings:
            edits.append(Edit("settings", 0, settings))
        # Ids that `other` gave and removed again are not reused here either.
        edits += [
            Edit("last_ids", name, other.last_ids[name])
            for name in ROW_TABLES
            if other.last_ids.get(name, 0) > self.last_ids.get(name, 0)
        ]
        return edits

    def numbers_to(self, other: DesiredState) -> list[Edit]:
        """Return the edits that take over the numbers of names that only `other` has numbered, as
        long as they were never given here.
        """
        return [
            Edit("numbers", name, number)
            for name, number in other.numbers.items()
            if name not in self.numbers and number >= self.next_id(prefix_of(name))
        ]

    def next_id(self, table: str) -> int:
        """Return the first id of `table` (or number of that prefix) that was never given."""
        return self.last_ids.get(table, 0) + 1

    @property
    def whitelist_count(self) -> int:
        """The count of whitelists that sent other traffic than the one before, from which the epoch
        is made (`planner.registry.epoch_of`); 0 before the first one.
        """
        return self.last_ids.get(WHITELIST, 0)

    def row(self, table: str, key: int | str) -> Any:
        """Return the row of `table` under `key`, which an `Edit` would replace, or None."""
        rows = getattr(self, table)
        return rows if table in ("whitelist", "settings") else rows.get(key)

    def node_named(self, name: str) -> Node | None:
        """Return the node of that name, or None."""
        key = self.node_by_name.get(name)
        return None if key is None else self.nodes[key]

    def group_exists(self, group: str) -> bool:
        """True if a node bears the group's name, or the group has settings of its own."""
        return group in self.group_sizes or group in self.group_by_name

    def group_named(self, group: str) -> TargetGroup | None:
        """Return the settings of a group, or None if it has none of its own."""
        key = self.group_by_name.get(group)
        return None if key is None else self.groups[key]

    def group_settings(self, group: str) -> TargetGroup:
        """Return the settings of a group: its own, or those that it has by the device's."""
        found = self.group_named(group)
        if found is not None:
            return found
        return TargetGroup(id=0, name=group, check_interval_s=self.settings.check_interval_s)

    def strategy_of(self, group: TargetGroup) -> GroupStrategy:
        """Return the strategy in force of a group with these settings."""
        return group.strategy or self.settings.group_strategy

    def target_exists(self, target: TargetName) -> bool:
        """True if the configuration allows traffic to `target`.

        An interface always counts: it may appear later, and blocks until then.
        """
        match target.kind:
            case "node":
                return target.name in self.node_by_name
            case "group":
                return self.group_exists(target.name)
            case _:
                return True


WHITELIST: Final = "whitelist"
"""The key of the count of whitelists in `DesiredState.last_ids`."""
ROW_TABLES = (
    "nodes",
    "rules",
    "lines",
    "services",
    "alert_channels",
    "groups",
    "subscriptions",
)
"""The tables of `DesiredState` that map ids to rows."""


_NAME_INDEXES: Final = {
    "lines": "line_by_name",
    "services": "service_by_name",
    "alert_channels": "alert_channel_by_name",
    "subscriptions": "subscription_by_name",
}


def prefix_of(name: str) -> str:
    """Return the prefix of a name in ``numbers``: a group's or an interface's."""
    return GROUP_PREFIX if name.startswith(GROUP_PREFIX) else INTERFACE_PREFIX


def highest_ids(edits: Iterable[Edit]) -> dict[str, int]:
    """Return the highest id that `edits` name in each table, and in each prefix of ``numbers``."""
    highest: dict[str, int] = {}
    for edit in edits:
        if edit.table in ROW_TABLES:
            name, number = edit.table, int(edit.key)
        elif edit.table == "numbers" and edit.after is not None:
            name, number = prefix_of(str(edit.key)), edit.after
        elif edit.table == "last_ids":
            name, number = str(edit.key), edit.after
        else:
            continue
        highest[name] = max(number, highest.get(name, 0))
    return highest


def _put(table: Map[K, V], key: K, value: V | None) -> Map[K, V]:
    if value is None:
        return table.delete(key) if key in table else table
    return table.set(key, value)


def _count(table: Map[str, int], key: str, by: int) -> Map[str, int]:
    number = table.get(key, 0) + by
    return table.set(key, number) if number else table.delete(key)


def _edit_named(draft: dict[str, Any], table: str, index: str, edit: Edit) -> None:
    before = draft[table].get(edit.key)
    # An earlier edit of the same change may have given the old name to another row.
    if before is not None and draft[index].get(before.name) == edit.key:
        draft[index] = draft[index].delete(before.name)
    if edit.after is not None:
        draft[index] = draft[index].set(edit.after.name, edit.key)
    draft[table] = _put(draft[table], edit.key, edit.after)


def _edit_node(draft: dict[str, Any], edit: Edit) -> None:
    before: Node | None = draft["nodes"].get(edit.key)
    after: Node | None = edit.after
    label = None if after is None else (after.name, after.group)
    if label != draft["node_labels"].get(edit.key):
        draft["node_labels"] = _put(draft["node_labels"], edit.key, label)
    groups = before.group if before else "", after.group if after else ""
    if groups[0] != groups[1]:
        for group, by in zip(groups, (-1, +1), strict=True):
            if group:
                draft["group_sizes"] = _count(draft["group_sizes"], group, by)
                _note_group(draft, group)
    _edit_named(draft, "nodes", "node_by_name", edit)
    names = before.name if before else "", after.name if after else ""
    if names[0] != names[1]:
        for name in filter(None, names):
            _note_look(draft, "nodes_like", name, name in draft["node_by_name"])


def _edit_group(draft: dict[str, Any], edit: Edit) -> None:
    before: TargetGroup | None = draft["groups"].get(edit.key)
    _edit_named(draft, "groups", "group_by_name", edit)
    for each in (before, edit.after):
        if each is not None:
            _note_group(draft, each.name)


def _note_group(draft: dict[str, Any], group: str) -> None:
    is_there = group in draft["group_sizes"] or group in draft["group_by_name"]
    _note_look(draft, "groups_like", group, is_there)


def _note_look(draft: dict[str, Any], index: str, name: str, is_there: bool) -> None:
    """Add the name to the index of looks, or remove it."""
    look = skeleton(name)
    names: Map[str, None] = draft[index].get(look, Map())
    if is_there:
        names = names.set(name, None)
    elif name in names:
        names = names.delete(name)
    draft[index] = _put(draft[index], look, names or None)


def _edit_rule(draft: dict[str, Any], edit: Edit) -> None:
    before: Rule | None = draft["rules"].get(edit.key)
    after: Rule | None = edit.after
    if before is not None:
        if draft["rule_by_ip"].get(before.ip) == edit.key:
            draft["rule_by_ip"] = draft["rule_by_ip"].delete(before.ip)
        if before.is_enabled:
            draft["target_uses"] = _count(draft["target_uses"], before.target_node, -1)
    if after is not None:
        draft["rule_by_ip"] = draft["rule_by_ip"].set(after.ip, edit.key)
        if after.is_enabled:
            draft["target_uses"] = _count(draft["target_uses"], after.target_node, +1)
    draft["rules"] = _put(draft["rules"], edit.key, after)


def load(tables: Mapping[str, Mapping[Any, Any]], revision: int) -> DesiredState:
    """Return the state made of whole stored tables, indexes included."""
    edits = [Edit(name, key, row) for name, rows in tables.items() for key, row in rows.items()]
    return DesiredState().with_edits(edits, revision)

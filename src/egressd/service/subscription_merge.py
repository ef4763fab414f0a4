"""The change that a fetched list makes to a subscription's nodes. Each keeps its id and its rules.

A node is found again by what it is, its protocol and configuration, and its name in the list; else
by what it is alone (it was renamed there); else by its name (its password or server changed); else
by its protocol, server and port, if one node has them on either side.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from typing import Final

import msgspec

from egressd.formats.config_json import FIELD, SETTINGS_KEYS, with_settings
from egressd.formats.json_text import check_size, read_object, write_object
from egressd.formats.rows import Accepted
from egressd.model.desired import DesiredState, Edit
from egressd.model.drafts import BadRow, NodeDraft
from egressd.model.errors import Invalid
from egressd.model.faults import Fault, fault
from egressd.model.names import NODE_NAME_MAX, node_name_problem, parse_target, seen_name
from egressd.model.nouns import Node, Subscription
from egressd.model.skeleton import skeleton
from egressd.model.subscriptions import NODES_MAX, ListedFate, NodeFate, Refreshed
from egressd.model.wording import NONE, Sentence, say, together
from egressd.planner import name_filters
from egressd.planner.nodes import settings_of
from egressd.service import checks
from egressd.service.import_fates import changed_fields
from egressd.service.looks import Looks
from egressd.service.node_problems import row_server_problems
from egressd.service.number_allocation import fresh_node_ids
from egressd.service.renames import rename_nodes
from egressd.service.servers import ServerSurroundings

_NUMBER_MAX: Final = 7
"""Characters of a blank and a number behind a name."""


class ListedNode(msgspec.Struct, frozen=True, kw_only=True):
    """A node of a list: its name there, the name that the subscription gives it, and itself."""

    name_there: str
    name: str
    protocol: str
    config: str
    """Its ``config_json``, without settings of this device."""


class ReadList(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a list that are taken, and the others with the reasons."""

    nodes: tuple[ListedNode, ...]
    passed: tuple[ListedFate, ...]


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """A change that a list makes, and what it means."""

    edits: tuple[Edit, ...]
    refreshed: Refreshed
    fates: tuple[ListedFate, ...]


def read_list(
    rows: Iterable[Accepted[NodeDraft] | BadRow],
    subscription: Subscription,
    around: ServerSurroundings,
) -> ReadList:
    """Return the nodes of a list that the subscription takes. Raises Invalid for too many."""
    nodes: list[ListedNode] = []
    passed: list[ListedFate] = []
    for row in rows:
        if isinstance(row, BadRow):
            passed.append(ListedFate(name="", fate="passed", reason=row.sentence))
            continue
        draft = row.draft
        if reason := _why_not(draft, subscription, around):
            passed.append(ListedFate(name=draft.name, fate="passed", reason=reason))
            continue
        if len(nodes) >= NODES_MAX:
            raise Invalid(fault("", "subscription-nodes-many", most=NODES_MAX))
        name = name_filters.replaced(subscription.rename, draft.name).strip()
        nodes.append(
            ListedNode(
                name_there=draft.name,
                name=name[: NODE_NAME_MAX + 1],  # one character too many is as bad as thousands
                protocol=draft.protocol,
                config=draft.config_json,
            )
        )
    return ReadList(nodes=tuple(nodes), passed=tuple(passed))


def _why_not(
    draft: NodeDraft, subscription: Subscription, around: ServerSurroundings
) -> Sentence | None:
    """Return the reason why a node of a list is not taken; None if it is. Its name is none: it may
    be a node that is here already, and keeps its name.
    """
    include, exclude = subscription.include, subscription.exclude
    if include and not name_filters.is_found(include, draft.name):
        return say("subscription-not-included")
    if exclude and name_filters.is_found(exclude, draft.name):
        return say("subscription-excluded")
    if problems := row_server_problems(draft, around, private=False):
        return together(each.sentence for each in problems)
    return None


def merged(state: DesiredState, subscription: Subscription, found: ReadList, now: str) -> Merge:
    """Return the change that makes the subscription's nodes those of the list. Raises Invalid, also
    for a list without any node that is taken.
    """
    own = [node for node in state.nodes.values() if node.subscription == subscription.id]
    pairs, new, gone = _paired(own, found.nodes)
    fresh: list[ListedNode] = []
    passed = [*found.passed]
    for listed in new:
        if problems := _name_problems(listed.name):
            reason = together(each.sentence for each in problems)
            passed.append(ListedFate(name=listed.name_there, fate="passed", reason=reason))
        else:
            fresh.append(listed)
    if not pairs and not fresh:
        raise Invalid(fault("", "subscription-empty", n=len(passed)))
    named = _named_nodes(state)
    keeps = subscription.gone == "keep"
    kept = [node for node in gone if keeps and node.name in named]
    deleted = [node for node in gone if not (keeps and node.name in named)]
    followed = {node.id for node, listed in pairs if _follows(subscription.rename, node, listed)}
    names = _Names(state, followed, {node.id for node in deleted}, named)
    changes: list[tuple[Node | None, Node]] = []
    for before, listed in pairs:
        # With the name there it would count as named by the operator, and follow no more.
        is_refused = _is_given(subscription.rename, before) and bool(_name_problems(listed.name))
        after = msgspec.structs.replace(
            before,
            name=names.new(listed.name) if before.id in followed else before.name,
            name_there=before.name_there if is_refused else listed.name_there,
            protocol=listed.protocol,
            config_json=_with_own_settings(before, listed),
            gone_at="",
        )
        changes.append((before, after))
    for node in kept:
        changes.append((node, msgspec.structs.replace(node, gone_at=node.gone_at or now)))
    fresh_ids = fresh_node_ids(state)
    for listed in fresh:
        changes.append(
            (
                None,
                Node(
                    id=next(fresh_ids),
                    name=names.new(listed.name),
                    protocol=listed.protocol,
                    config_json=listed.config,
                    group=subscription.group,
                    created_at=now,
                    subscription=subscription.id,
                    name_there=listed.name_there,
                ),
            )
        )
    edits = [Edit("nodes", node.id, None) for node in deleted]
    left = state.with_edits(edits, state.revision)
    edits += _with_references(left, [pair for pair in changes if pair[0] != pair[1]], now)
    fates = [_fate(before, after) for before, after in changes]
    fates += [ListedFate(name=node.name, fate="deleted", reason=NONE) for node in deleted]
    counts = defaultdict[str, int](int)
    for fate in fates:
        counts[fate.fate] += 1
    return Merge(
        edits=tuple(edits),
        refreshed=Refreshed(
            added=counts["added"],
            changed=counts["changed"],
            renamed=counts["renamed"],
            gone=len(gone),
            total=len(pairs) + len(fresh),
            passed_over=len(passed),
        ),
        fates=(*fates, *passed),
    )


def _fate(before: Node | None, after: Node) -> ListedFate:
    if before is None:
        return ListedFate(name=after.name, fate="added", reason=NONE)
    if after.gone_at:
        return ListedFate(name=after.name, fate="kept", reason=NONE)
    changed = tuple(
        field for field in changed_fields(before, after) if field not in ("name_there", "gone_at")
    )
    if before.name != after.name:
        return ListedFate(name=after.name, fate="renamed", changed=changed, reason=NONE)
    is_same = not changed and not before.gone_at
    fate: NodeFate = "same" if is_same else "changed"
    return ListedFate(name=after.name, fate=fate, changed=changed, reason=NONE)


# --- Which node is which. ------------------------------------------------------------------------


def _paired(
    own: Sequence[Node], listed: Sequence[ListedNode]
) -> tuple[list[tuple[Node, ListedNode]], list[ListedNode], list[Node]]:
    """Return the nodes that are found again, those that are new, and those that are gone."""
    left: dict[int, Node] = {node.id: node for node in own}
    configs = {node.id: _bare(node.config_json) for node in own}
    fresh: dict[int, ListedNode] = dict(enumerate(listed))
    fresh_configs = {number: _bare(each.config) for number, each in fresh.items()}
    pairs: dict[int, Node] = {}

    def pair(
        key_of: Callable[[Node], Hashable],
        fresh_key_of: Callable[[int], Hashable],
        *,
        is_sole: bool = False,
    ) -> None:
        """Pair what has the same key, in order; with `is_sole` only if one has it on each side."""
        there, here = defaultdict[Hashable, list[int]](list), defaultdict[Hashable, list[int]](list)
        for node in left.values():
            here[key_of(node)].append(node.id)
        for number in fresh:
            there[fresh_key_of(number)].append(number)
        for key, numbers in there.items():
            ids = here.get(key, [])
            if is_sole and (len(ids), len(numbers)) != (1, 1):
                continue
            for number, node_id in zip(numbers, ids, strict=False):
                pairs[number] = left.pop(node_id)
                del fresh[number]

    pair(
        lambda node: (node.protocol, configs[node.id], node.name_there),
        lambda n: (fresh[n].protocol, fresh_configs[n], fresh[n].name_there),
    )
    pair(
        lambda node: (node.protocol, configs[node.id]),
        lambda n: (fresh[n].protocol, fresh_configs[n]),
    )
    pair(lambda node: node.name_there, lambda n: fresh[n].name_there)
    pair(
        lambda node: (node.protocol, *_server(node.config_json)),
        lambda n: (fresh[n].protocol, *_server(fresh[n].config)),
        is_sole=True,
    )
    return (
        [(node, listed[number]) for number, node in sorted(pairs.items())],
        [*fresh.values()],
        [*left.values()],
    )


@lru_cache(2 * NODES_MAX)
def _bare(config: str) -> str:
    """Return a configuration without the settings of this device, in one order of keys. It is kept,
    since each is compared several times.
    """
    fields = _object(config)
    return json.dumps(
        {key: value for key, value in fields.items() if key not in SETTINGS_KEYS}, sort_keys=True
    )


def _server(config: str) -> tuple[Hashable, Hashable]:
    fields = _object(config)
    return str(fields.get("server")), str(fields.get("port"))


def _object(config: str) -> dict[str, object]:
    try:
        return read_object(config, FIELD)
    except Invalid:  # of an older version, which took any text
        return {}


def _with_own_settings(before: Node, listed: ListedNode) -> str:
    """Return the configuration of the list, with the settings that the node has here. Raises
    Invalid.
    """
    old = _object(before.config_json)
    if _bare(before.config_json) == _bare(listed.config):
        return before.config_json
    settings: dict[str, object] = {key: old[key] for key in SETTINGS_KEYS if key in old}
    if not settings:
        return listed.config
    text = write_object({**read_object(listed.config, FIELD), **settings})
    check_size(text, FIELD)
    return text


# --- Names. --------------------------------------------------------------------------------------


class _Names:
    """The names of a subscription's nodes: those that they had, or free ones for new names.

    A name that something names, such as a rule, and that no node has, is not free: what names it
    blocks, and would lead to a node that was not chosen for it.
    """

    def __init__(
        self, state: DesiredState, followed: Set[int], deleted: Set[int], named: frozenset[str]
    ) -> None:
        """`followed` are the ids of the nodes that get other names, `deleted` of those that go."""
        without = (
            name
            for name in named
            if (there := state.node_by_name.get(name)) is None or there in deleted
        )
        freed = followed | deleted
        stay = (node.name for node in state.nodes.values() if node.id not in freed)
        self._looks = Looks("node", (*stay, *without), is_target=True)
        self._numbers: dict[str, int] = {}
        """The look of a name -> the last number given to it, since the names of a list may all look
        the same."""

    def new(self, name: str) -> str:
        """Return a name, with a number if another node has it or looks like it."""
        wanted = name if name not in self._looks else self._numbered(name)
        self._looks.add(wanted)
        return wanted

    def _numbered(self, name: str) -> str:
        """Return a name with the next free number, from 2."""
        stem = _stem(name)
        look = skeleton(stem)
        number = self._numbers.get(look, 1) + 1
        while (wanted := f"{stem} {number}") in self._looks:
            number += 1
        self._numbers[look] = number
        return wanted


def _follows(rename: Mapping[str, str], node: Node, listed: ListedNode) -> bool:
    """True if a node was renamed there, to a name that a node can have, and has the name here that
    it got from there.
    """
    is_renamed = node.name_there != listed.name_there
    return is_renamed and not _name_problems(listed.name) and _is_given(rename, node)


def _is_given(rename: Mapping[str, str], node: Node) -> bool:
    """True if a node has the name that a subscription gives it, and not one of the operator's."""
    given = _given_name(rename, node)
    return node.name == given or _is_numbered(node.name, given)


def _given_name(rename: Mapping[str, str], node: Node) -> str:
    """Return the name that a subscription gives a node by its name there, without a number."""
    return name_filters.replaced(rename, node.name_there).strip()


def renamed(state: DesiredState, before: Subscription, after: Subscription, now: str) -> list[Edit]:
    """Return the edits by which a subscription that renames otherwise gives its nodes their names
    anew, those apart that the operator has renamed. Raises Invalid, also if one would get a name
    that no node can have: with its former name it would count as renamed by the operator.
    """
    if [*before.rename.items()] == [*after.rename.items()]:  # their order counts
        return []
    others: dict[int, str] = {}
    for node in sorted(state.nodes.values(), key=lambda each: each.id):
        if node.subscription != before.id or not _is_given(before.rename, node):
            continue
        name = _given_name(after.rename, node)
        if name == _given_name(before.rename, node):
            continue
        if problems := _name_problems(name):
            raise Invalid(
                fault(
                    "rename",
                    "rename-unsuitable",
                    name=node.name,
                    new=name[:NODE_NAME_MAX],
                    reason=together(each.sentence for each in problems),
                )
            )
        others[node.id] = name
    names = _Names(state, others.keys(), frozenset(), _named_nodes(state))
    changes: list[tuple[Node | None, Node]] = []
    for node_id, name in others.items():
        node = state.nodes[node_id]
        changes.append((node, msgspec.structs.replace(node, name=names.new(name))))
    return [*_with_references(state, changes, now)]


def _name_problems(name: str) -> list[Fault]:
    """Return why a new node cannot have a name, whatever others are called."""
    if problem := node_name_problem(name):
        return [problem]
    return [*checks.new_name("name", name, "node", ())]


def _stem(name: str) -> str:
    """Return the part of a name that stands before a number."""
    return seen_name(name[: NODE_NAME_MAX - _NUMBER_MAX]).strip()


def _is_numbered(name: str, stem: str) -> bool:
    """True if a name is another one with a number behind it."""
    rest = name.removeprefix(f"{_stem(stem)} ")
    return rest != name and rest.isdecimal()


def _with_references(
    state: DesiredState, changes: Sequence[tuple[Node | None, Node]], now: str
) -> Iterator[Edit]:
    """Yield the edits of nodes, and of what names those that are renamed. Raises Invalid."""
    renamed = {
        before.name: after.name
        for before, after in changes
        if before is not None and before.name != after.name
    }
    put = {after.id: after for _, after in changes}
    for edit in rename_nodes(state, renamed, now) if renamed else ():
        if edit.table != "nodes":
            yield edit
            continue
        node, relay = put.get(edit.after.id, edit.after), settings_of(edit.after).dialer_proxy
        put[node.id] = msgspec.structs.replace(
            node,
            config_json=with_settings(node.config_json, dialer_proxy=relay),
            change_ip_via=edit.after.change_ip_via,
        )
    yield from (Edit("nodes", node.id, node) for node in put.values())


def _named_nodes(state: DesiredState) -> frozenset[str]:
    """Return the names of nodes that something names, also of those that do not exist."""
    found = {rule.target_node for rule in state.rules.values()}
    found |= {channel.via for channel in state.alert_channels.values()}
    found |= {each.via for each in state.subscriptions.values()}
    found |= {member for group in state.groups.values() for member in group.members}
    for node in state.nodes.values():
        found |= {settings_of(node).dialer_proxy, node.change_ip_via}
    found |= {state.whitelist.node, state.settings.unmanaged}
    return frozenset(name for name in found if name and parse_target(name).kind == "node")

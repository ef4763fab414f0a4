"""Changes that can be undone: the inverse that is kept of each, and what stands in the way of it.

An inverse has the rows as they were before, and a trace of what the change made of them, by which a
later change to the same fields is found.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from egressd.model.desired import DesiredState, Edit
from egressd.model.nouns import AlertChannel, Line, Node, ProxyService, Subscription
from egressd.model.wording import Coded, Coding, Sentence, say

CHANGES_KEPT: Final = 1000
"""Changes that are kept, the latest ones. As many that undo others are kept beside them."""
INVERSES_MAX: Final = 64 * 1024 * 1024
"""Bytes of all inverses that are kept."""
TRACED_MAX: Final = 256
"""Characters of the longest text that a trace has whole."""
SHOWN_MAX: Final = 100
"""Characters of a text that are shown, and that a trace has of a longer one."""

_WITHOUT_INVERSE: Final = ("numbers", "last_ids")
"""Tables in which nothing is ever taken back: a number or an id stays with what it was given to."""
_STAMPS: Final = frozenset({"updated_at"})
"""Fields that each change of a row sets."""
_THINGS: Final = {
    "nodes": "node",
    "rules": "rule",
    "lines": "VPN line",
    "services": "proxy service",
    "alert_channels": "alert channel",
    "groups": "group",
    "subscriptions": "subscription",
}
SECRETS: Final[Mapping[str, Sequence[str]]] = {
    "nodes": Node.SECRET,
    "rules": (),
    "lines": Line.SECRET,
    "services": ProxyService.SECRET,
    "whitelist": (),
    "settings": (),
    "alert_channels": AlertChannel.SECRET,
    "groups": (),
    "subscriptions": Subscription.SECRET,
}
"""Table -> the fields of its rows that are never shown. Of a table that is not here none is."""
_SINGLE: Final = {"whitelist": "the-whitelist", "settings": "the-settings"}

Trace = Mapping[str, Any]
"""The fields of a row; a long text is replaced by its length, digest and beginning."""


class Reversal(msgspec.Struct, frozen=True):
    """The inverse of a change to one row."""

    table: str
    key: int | str
    before: Any
    """The row before the change; None if the change made it."""
    after: Trace | None
    """The trace of the row after the change; None if the change deleted it."""


class LoggedChange(Coding, frozen=True, kw_only=True):
    """An accepted change as it is stored, in the transaction of the change itself."""

    at: str
    who: str
    source: str
    what: str
    text: Sentence
    text_coded: Coded | None = None
    reversals: Sequence[Reversal]
    undoes: int | None = None
    """The revision of the change that this one undoes."""
    ends_trial: bool = False
    """True if it takes back what was changed on trial."""


class PastChange(msgspec.Struct, frozen=True, kw_only=True):
    """A stored change, without its inverse."""

    revision: int
    at: str
    who: str
    source: str
    what: str
    text: Sentence
    undoes: int | None
    has_inverse: bool
    """False if there was no room for its inverse."""


class Obstacle(msgspec.Struct, frozen=True, kw_only=True):
    """A row by which a change cannot be undone."""

    table: str
    key: int | str
    label: Sentence
    """The row in words."""
    fields: tuple[str, ...] = ()
    """The fields that a later change has set; empty for the row as a whole."""
    is_gone: bool = False
    """True if a later change has deleted it."""
    holder: Sentence | None = None
    """The row that has the name, address or port now that this one had."""


def traced(row: Any) -> Trace | None:
    """Return the trace of a row; None for none."""
    if row is None:
        return None
    fields: dict[str, Any] = msgspec.to_builtins(row)
    return {name: _trace_of(value) for name, value in fields.items()}


def _trace_of(value: Any) -> Any:
    """Return a value as it is read back from bytes, but a long text in short."""
    match value:
        case tuple():
            return list(value)
        case dict():
            return {name: _trace_of(each) for name, each in value.items()}
        case str() if len(value) > TRACED_MAX:
            return _short(value)
        case _:
            return value


def _short(text: str) -> list[Any]:
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16)
    return [len(text), digest.hexdigest(), text[:SHOWN_MAX]]


def reversals(before: DesiredState, edits: Iterable[Edit]) -> list[Reversal]:
    """Return the inverse of `edits`, which change the state `before`; each row is in it once."""
    last = {(edit.table, edit.key): edit for edit in edits if edit.table not in _WITHOUT_INVERSE}
    found = []
    for (table, key), edit in last.items():
        row = before.row(table, key)
        if row != edit.after:
            found.append(Reversal(table, key, row, traced(edit.after)))
    return found


def undoing(state: DesiredState, inverse: Iterable[Reversal]) -> tuple[list[Edit], list[Obstacle]]:
    """Return the edits that undo a change in `state`, and what stands in their way.

    Of a row that was changed since, the fields that the change had set are set back, if they are
    still as it left them. What is as before already needs no edit.
    """
    edits: list[Edit] = []
    obstacles: list[Obstacle] = []
    for each in inverse:
        current = state.row(each.table, each.key)
        if current == each.before:
            continue
        if _is_as_left(current, each.after):
            edits.append(Edit(each.table, each.key, each.before))
        elif current is None or each.before is None or each.after is None:
            row = current if current is not None else each.before
            obstacles.append(
                Obstacle(
                    table=each.table,
                    key=each.key,
                    label=label(each.table, each.key, row),
                    is_gone=current is None,
                )
            )
        else:
            merged, fields = _merged(current, each.before, each.after)
            if fields:
                named = label(each.table, each.key, current)
                obstacles.append(
                    Obstacle(table=each.table, key=each.key, label=named, fields=fields)
                )
            elif merged != current:
                edits.append(Edit(each.table, each.key, merged))
    return edits, [*obstacles, *_taken(state, edits)]


def _is_as_left(current: Any, after: Trace | None) -> bool:
    """True if a row is as a change has left it. A field that egressd did not have then is as it was
    by default.
    """
    now = traced(current)
    if now is None or after is None:
        return now is after
    return all(now.get(name) == value for name, value in after.items())


def _merged(current: Any, before: Any, after: Trace) -> tuple[Any, tuple[str, ...]]:
    """Return the row with the fields set back that a change has set, and the fields among them that
    a later change has set to something else.
    """
    was, now = traced(before), traced(current)
    assert was is not None
    assert now is not None
    put: dict[str, Any] = {}
    others: list[str] = []
    for name, value in was.items():
        if name not in after or value == after[name] or now[name] == value or name in _STAMPS:
            continue
        if now[name] == after[name]:
            put[name] = getattr(before, name)
        else:
            others.append(name)
    return msgspec.structs.replace(current, **put), tuple(others)


def _taken(state: DesiredState, edits: Sequence[Edit]) -> Iterator[Obstacle]:
    """Yield the rows whose name, address or port another row has by now."""
    put = {(edit.table, edit.key): edit.after for edit in edits}
    indexes = {
        "nodes": ("name", state.node_by_name),
        "rules": ("ip", state.rule_by_ip),
        "lines": ("name", state.line_by_name),
        "services": ("name", state.service_by_name),
        "alert_channels": ("name", state.alert_channel_by_name),
        "groups": ("name", state.group_by_name),
        "subscriptions": ("name", state.subscription_by_name),
    }
    for (table, key), row in put.items():
        if table not in indexes or row is None:
            continue
        field, index = indexes[table]
        keys = [index.get(getattr(row, field))]
        if table == "services":
            keys += [k for k, each in state.services.items() if each.port == row.port]
        for other in keys:
            if other is None or other == key:
                continue
            holder = put[table, other] if (table, other) in put else state.row(table, other)
            if holder is None:
                continue
            if getattr(row, field) == getattr(holder, field) or (
                table == "services" and row.port == holder.port
            ):
                yield Obstacle(
                    table=table,
                    key=key,
                    label=label(table, key, row),
                    holder=label(table, other, holder),
                )
                break


def thing(table: str) -> str:
    """Return the word for a row of a table."""
    return _THINGS.get(table, table)


def name_of(row: Any) -> str:
    """Return the name of a row, or the address of a rule; empty if it has none."""
    return str(getattr(row, "name", "") or getattr(row, "host", ""))


def label(table: str, key: int | str, row: Any) -> Sentence:
    """Return a row in words; `row` may be None."""
    if table in _SINGLE:
        return say(_SINGLE[table])
    return say("thing-named", thing=thing(table), name=name_of(row) or str(key))


def summary(before: DesiredState, edits: Sequence[Edit]) -> list[Sentence]:
    """Return sentences about what `edits` make of the state `before`, one for each kind."""
    created: dict[str, list[Any]] = {}
    saved: dict[str, list[Any]] = {}
    deleted: dict[str, list[Any]] = {}
    last = {(edit.table, edit.key): edit.after for edit in edits}
    for (table, key), after in last.items():
        if table in _WITHOUT_INVERSE:
            continue
        row = before.row(table, key)
        kind = created if row is None else deleted if after is None else saved
        kind.setdefault(table, []).append(row if after is None else after)
    said: list[Sentence] = []
    for kind, one, many in (
        (created, "created", "some-created"),
        (saved, "saved", "some-updated"),
        (deleted, "deleted", "some-deleted"),
    ):
        for table, rows in kind.items():
            if table in _SINGLE:
                said.append(say(f"{table}-saved"))
            elif len(rows) == 1:
                said.append(say(one, thing=thing(table), name=name_of(rows[0])))
            else:
                said.append(say(many, thing=thing(table), n=len(rows)))
    return said


def undone_by(past: Iterable[PastChange]) -> dict[int, int]:
    """Return for each change that is undone the revision that undoes it. An undo that was itself
    undone does not count.
    """
    found: dict[int, int] = {}
    for each in sorted(past, key=lambda change: -change.revision):
        if each.undoes is not None and each.revision not in found:
            found.setdefault(each.undoes, each.revision)
    return found

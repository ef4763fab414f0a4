"""The fate of each row of an import that is only tried."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec

from egressd.model.drafts import RowFate
from egressd.model.nouns import Line, Node

_OWN = {"id", "created_at"}
"""Fields that the device itself gives an object."""


class Fates:
    """Collects the fates of accepted rows, the first `most` of them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: list[RowFate] = []

    @property
    def found(self) -> tuple[RowFate, ...]:
        """The fates so far, by line."""
        return tuple(self._found)

    def stored(self, line: int, before: Node | Line | None, after: Node | Line) -> None:
        """Note that a row makes `after` of `before`."""
        changed = () if before is None else tuple(changed_fields(before, after))
        fate = RowFate(
            line=line,
            fate="added" if before is None else "changed" if changed else "same",
            name=after.name,
            changed=changed,
        )
        self._add(fate)

    def skipped(self, line: int, there: Node | None, name: str, wanted: msgspec.Struct) -> None:
        """Note that a row is skipped because of its name: `there` has it, or an earlier row."""
        changed = () if there is None else tuple(changed_fields(there, wanted))
        fate = RowFate(
            line=line,
            fate="twice" if there is None else "clash" if changed else "same",
            name=name,
            changed=changed,
        )
        self._add(fate)

    def _add(self, fate: RowFate) -> None:
        if len(self._found) < self._most:
            self._found.append(fate)


def changed_fields(before: Node | Line, after: msgspec.Struct) -> Iterator[str]:
    """Yield the fields of `after` that `before` has other values of. Those within a node's
    configuration are named themselves; no value is repeated, since some are secrets.
    """
    for field in after.__struct_fields__:
        old, new = getattr(before, field), getattr(after, field)
        if field in _OWN or old == new:
            continue
        if field == "config_json":
            yield from _changed_keys(old, new)
        else:
            yield field


def _changed_keys(before: str, after: str) -> Iterator[str]:
    old, new = _object(before), _object(after)
    yield from (key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key))


def _object(text: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError:  # of an older version, which took any text
        return {}
    return found if isinstance(found, dict) else {}

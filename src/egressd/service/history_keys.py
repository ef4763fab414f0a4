"""The numbers of the keys of the history: each client, target, interface, node, line and group has
one.

There is a bound to them. A key that was not used for weeks gives its number to a new one, and a key
for which there is none left has no history. A client is used by traffic, a node by its state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Final

from egressd.model.history import KEYS_MAX, HistoryKey, KeyKind

REUSED_AFTER_S: Final = 45 * 86_400
"""Seconds without traffic after which another key may have a key's number."""


class HistoryKeys:
    """The numbers, by the kinds and names of the keys."""

    def __init__(self) -> None:
        self.of: dict[KeyKind, dict[str, HistoryKey]] = {by: {} for by in KEYS_MAX}
        self.changed: dict[tuple[KeyKind, int], HistoryKey] = {}
        """Keys that have to be written, by kind and number."""
        self.unrecorded: dict[KeyKind, set[str]] = {by: set() for by in KEYS_MAX}
        """Keys with traffic today that got no number, as many as could have one at most."""
        self._reusable: dict[KeyKind, deque[HistoryKey]] = {}
        """Keys whose numbers others may have today, the one without traffic for longest first."""
        self._day = 0

    def take(self, stored: Sequence[HistoryKey]) -> None:
        """Take the keys that are stored."""
        for key in stored:
            self.of[key.by][key.name] = key

    def change_all(self) -> None:
        """Have all keys written again."""
        self.changed = {
            (key.by, key.number): key for all_ in self.of.values() for key in all_.values()
        }

    def written(self, keys: Iterable[HistoryKey]) -> None:
        """Note that these were written; those that are others by now are written next."""
        for key in keys:
            if self.changed.get((key.by, key.number)) == key:
                del self.changed[key.by, key.number]

    def number(self, by: KeyKind, name: str, day: int) -> int | None:
        """Return the number of a key that has traffic on this day, or None if there is none left
        for it. The day is the Unix time at which it begins.
        """
        if day != self._day:
            self._day = day
            self.unrecorded = {each: set() for each in KEYS_MAX}
            self._reusable.clear()
        key = self.of[by].get(name) or self._new(by, name, day)
        if key is None:
            if len(self.unrecorded[by]) < KEYS_MAX[by]:
                self.unrecorded[by].add(name)
            return None
        # The day is written every one or two weeks, those of keys in turns.
        if abs(day - key.used) > (7 + key.number % 7) * 86_400:
            self._put(key._replace(used=day))
        return key.number

    def rename(self, by: KeyKind, before: str, name: str) -> None:
        """Give a key another name, with all that it has. Nothing is done if there is no such key,
        or the name is another one's.
        """
        known = self.of[by]
        if before in known and name not in known:
            self._put(known.pop(before)._replace(name=name))

    def _new(self, by: KeyKind, name: str, day: int) -> HistoryKey | None:
        known = self.of[by]
        if len(known) < KEYS_MAX[by]:
            key = HistoryKey(by, len(known), name, 0, day)
        else:
            oldest = self._oldest(by, day)
            if oldest is None:
                return None
            del known[oldest.name]
            key = HistoryKey(by, oldest.number, name, day, day)
        self._put(key)
        return key

    def _oldest(self, by: KeyKind, day: int) -> HistoryKey | None:
        """Return the key whose number may be another's, or None if all are in use."""
        known = self.of[by]
        if by not in self._reusable:
            unused = [key for key in known.values() if day - key.used >= REUSED_AFTER_S]
            self._reusable[by] = deque(sorted(unused, key=lambda key: key.used))
        reusable = self._reusable[by]
        while reusable:
            key = reusable.popleft()
            if known.get(key.name) == key:  # it has had no traffic since
                return key
        return None

    def _put(self, key: HistoryKey) -> None:
        self.of[key.by][key.name] = key
        self.changed[key.by, key.number] = key

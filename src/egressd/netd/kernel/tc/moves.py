"""The effects of a change of limits on each rule. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from egressd.model.plan import Limit
from egressd.planner.shaping import DOWNLOAD, Direction, class_at


class LimitChange(NamedTuple):
    """The effect of a change on one rule."""

    rule: int
    old_key: str
    old: Limit | None
    """Limit before the change; None for a new rule."""
    new_key: str
    new: Limit | None
    """Limit after the change; None for a removed rule."""

    def kbps(self, direction: Direction) -> tuple[int, int]:
        """Return the limit in one direction, before and after; 0 is none."""
        old = 0 if self.old is None else direction.kbps(self.old)
        return old, 0 if self.new is None else direction.kbps(self.new)

    @property
    def is_counted_elsewhere(self) -> bool:
        """True if the rule persists, and another counter counts its traffic afterwards."""
        old, new = self.classes(DOWNLOAD, 0)
        lives_on = self.old is not None and self.new is not None
        return lives_on and (self.old_key != self.new_key or old != new)

    def classes(self, direction: Direction, number: int) -> tuple[int | None, int | None]:
        """Return the rule's class in one direction, before and after; None without a limit.
        `number`: what the rule was given.
        """
        old, new = (class_at(number, kbps) if kbps else None for kbps in self.kbps(direction))
        return old, new


def moves_between(old: Mapping[str, Limit], new: Mapping[str, Limit]) -> list[LimitChange]:
    """Return the move of each rule, identified by number: its address may have changed."""
    before = {limit.number: (key, limit) for key, limit in old.items()}
    after = {limit.number: (key, limit) for key, limit in new.items()}
    nothing = ("", None)
    return [
        LimitChange(rule, *before.get(rule, nothing), *after.get(rule, nothing))
        for rule in {**before, **after}
    ]


def hosts_of(limits: Mapping[str, Limit]) -> dict[str, Limit]:
    """Return the limits of single addresses."""
    return {key: limit for key, limit in limits.items() if "/" not in key}

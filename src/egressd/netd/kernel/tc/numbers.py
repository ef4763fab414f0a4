"""The number of each limited rule's classes: 16 bits, the same in both directions."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from typing import Final

from egressd.model.errors import Failed
from egressd.planner.registry import HTB_TREE_CLASSES, HTB_TREES

_END: Final = HTB_TREES * HTB_TREE_CLASSES


def is_usable(number: int) -> bool:
    """Return whether a class may have this number: the first of each tree is its root's."""
    return 0 <= number < _END and number % HTB_TREE_CLASSES != 0


class ClassNumbers:
    """Rule -> the number of its classes, which it keeps for as long as it is limited."""

    capacity: Final = sum(map(is_usable, range(_END)))
    """Number of rules that can be limited at once."""

    def __init__(self) -> None:
        self._given: dict[int, int] = {}
        self._returned: list[int] = []
        self._next = 0
        """The lowest number that was never given."""

    @property
    def given(self) -> Mapping[int, int]:
        """The classes of all limited rules."""
        return self._given

    def recover(self, found: Mapping[int, int]) -> None:
        """Begin with the classes that rules have in the kernel, left there by an earlier netd."""
        taken: set[int] = set()
        for rule, number in found.items():
            if is_usable(number) and number not in taken:
                self._given[rule] = number
                taken.add(number)
        self._next = max(taken, default=-1) + 1
        self._returned = [n for n in range(self._next) if n not in taken and is_usable(n)]

    def give(self, rules: Iterable[int]) -> None:
        """Give a class to each rule that has none. Raises Failed, giving none, if they run out."""
        new = [rule for rule in dict.fromkeys(rules) if rule not in self._given]
        if len(self._given) + len(new) > self.capacity:
            raise Failed(
                "set speed limits",
                f"{len(self._given) + len(new)} rules are limited, and the kernel has numbers "
                f"for {self.capacity} only; limit a network as a whole in place of its hosts",
            )
        for rule in new:
            self._given[rule] = self._take()

    def take_back(self, rules: Iterable[int]) -> None:
        """Release the classes of these rules, if they have one, for other rules."""
        for rule in rules:
            number = self._given.pop(rule, None)
            if number is not None:
                heapq.heappush(self._returned, number)

    def _take(self) -> int:
        if self._returned:
            return heapq.heappop(self._returned)
        while not is_usable(self._next):
            self._next += 1
        self._next += 1
        return self._next - 1

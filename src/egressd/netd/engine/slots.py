"""The slots that instances are started in: a worker for each 16 of them, as far as that goes. Pure.

A worker takes as much memory as some 250 instances, so there are few; but starting an instance
takes longer the more its worker runs, and a worker that crashes takes its instances along. An
instance cannot move without cutting its connections: it stays in its worker, and workers are
counted by instances, not by their traffic, which comes and goes.

Instances are counted by their keys: the successor of an instance starts beside it, and is none
more. If more workers run than are wanted, instances start in the fullest of them, so that the
others become empty and end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

import msgspec

INSTANCES_EACH: Final = 16
"""Number of instances for each of which there is a worker, as long as the limit allows it."""


class SlotView(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a slot that has been opened."""

    keys: Collection[str] = ()
    """Keys of the instances that its worker runs or that are about to start there."""
    lost: Collection[str] = ()
    """Keys of the instances that went down with its worker, which is being replaced."""
    is_usable: bool = True
    """True if it has a worker, or gets one soon, and takes instances."""

    @property
    def load(self) -> int:
        """Number of instances that it runs or is about to."""
        return len(self.keys) + len(self.lost)


def wanted(instances: int, limit: int) -> int:
    """Return the number of workers for that many instances, of `limit` at most."""
    return min(max(-(-instances // INSTANCES_EACH), 1), limit)


def choose(key: str, slots: Mapping[int, SlotView], limit: int) -> int | None:
    """Return the slot in which an instance of `key` is to start, of the opened ones or a new one
    from 1 to `limit`. None if there is none that can be used now.

    An instance that went down with its worker starts in its successor: starting takes longer beside
    the instances of another worker, whose clients would notice, and if it was the cause it takes no
    others along.
    """
    usable = {index: slot for index, slot in slots.items() if slot.is_usable}
    for index, slot in usable.items():
        if key in slot.lost:
            return index
    count = wanted(_instances(key, usable.values(), limit), limit)
    if len(usable) < count:
        for index in range(1, limit + 1):
            if index not in slots:
                return index
    fullest = sorted(usable, key=lambda index: (-usable[index].load, index))[:count]
    return min(fullest, key=lambda index: (usable[index].load, index), default=None)


def _instances(key: str, slots: Collection[SlotView], limit: int) -> int:
    """Return the number of instances with that of `key`, or one for which all workers are wanted:
    with thousands of instances, starting all of them would count millions.
    """
    largest = max((slot.load for slot in slots), default=0)
    if largest > (limit - 1) * INSTANCES_EACH:
        return largest
    return len({key}.union(*(slot.keys for slot in slots), *(slot.lost for slot in slots)))


def superfluous(slots: Mapping[int, SlotView]) -> set[int]:
    """Return the slots whose workers may end: all that are empty, except one if no other has an
    instance. The next instance starts without waiting for a worker then.
    """
    empty = sorted((not slot.is_usable, index) for index, slot in slots.items() if not slot.load)
    kept = 0 if len(empty) < len(slots) else 1
    return {index for _, index in empty[kept:]}

"""The slots of the history that memory has: those that still grow, and those not yet written."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Final

from egressd.model.history import (
    DELAY_BLOCK,
    STORED,
    Blocks,
    By,
    Exchanged,
    HistoryKey,
    HistoryStep,
    OpenSlot,
    SlotStart,
    TrafficSlot,
    block_of,
    exchanged_in,
)

UNWRITTEN_MAX: Final = 16
"""Ended slots of a step that wait for a disk that fails."""


class MemorySlots:
    """The slot of each step that grows, ended ones that wait for a write, and the last minutes,
    which are never written. Each takes the place of a stored one with the same start.
    """

    def __init__(self) -> None:
        self.open: dict[HistoryStep, OpenSlot] = {}
        self.ended: dict[HistoryStep, dict[int, Blocks]] = {step: {} for step in STORED}
        self.minutes: deque[tuple[int, Blocks]] = deque(maxlen=HistoryStep.MINUTE.kept)

    def add(self, by: By, number: int, more: Exchanged) -> None:
        """Add the bytes of the key that has this number to all slots that grow."""
        for slot in self.open.values():
            slot.add(by, number, more)

    def add_delay(self, number: int, ms: int) -> None:
        """Add a delay of the node that has this number to all slots that grow."""
        for slot in self.open.values():
            slot.add_delay(number, ms)

    def end(self, step: HistoryStep) -> None:
        """End the slot of a step that grows."""
        slot = self.open.pop(step)
        if step is HistoryStep.MINUTE:
            self.minutes.append((slot.start, slot.blocks()))
            return
        ended = self.ended[step]
        ended[slot.start] = slot.blocks()
        while len(ended) > UNWRITTEN_MAX:
            del ended[next(iter(ended))]

    def to_write(self, steps: Collection[HistoryStep]) -> list[TrafficSlot]:
        """Return all that have ended, and those of `steps` that grow."""
        slots = [
            TrafficSlot(step, start, blocks)
            for step, ended in self.ended.items()
            for start, blocks in ended.items()
        ]
        slots += [
            TrafficSlot(step, slot.start, slot.blocks())
            for step, slot in self.open.items()
            if step in steps
        ]
        return slots

    def growing(self) -> list[SlotStart]:
        """Return the starts of the slots that grow, and are stored once."""
        return [(step, slot.start) for step, slot in self.open.items() if step in STORED]

    def written(self) -> None:
        """Forget the ended ones: they are stored."""
        for ended in self.ended.values():
            ended.clear()

    def exchanged(
        self, step: HistoryStep, by: By, key: HistoryKey | None
    ) -> list[tuple[int, Exchanged]]:
        """Return the start of each slot of a step, with the bytes of a key."""
        slots = self._closed(step)
        grows = self.open.get(step)
        opened = () if grows is None else (grows,)
        if key is None:
            starts = (*(at for at, _ in slots), *(slot.start for slot in opened))
            return [(at, Exchanged()) for at in starts]
        block, number = block_of(by, key.number), key.number
        return [
            *((at, exchanged_in(blocks.get(block, b""), number)) for at, blocks in slots),
            *((slot.start, slot.exchanged(by, number)) for slot in opened),
        ]

    def delays(self, step: HistoryStep) -> dict[int, bytes]:
        """Return the block of nodes' delays of each slot of a step, by its start."""
        found = {at: blocks.get(DELAY_BLOCK, b"") for at, blocks in self._closed(step)}
        if (grows := self.open.get(step)) is not None:
            found[grows.start] = grows.blocks().get(DELAY_BLOCK, b"")
        return found

    def _closed(self, step: HistoryStep) -> Collection[tuple[int, Blocks]]:
        return self.minutes if step is HistoryStep.MINUTE else self.ended[step].items()

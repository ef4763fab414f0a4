"""The history on disk, in a thread of its own: see `egressd.store.history_file`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import structlog

from egressd.model.errors import Failed
from egressd.model.history import (
    By,
    Exchanged,
    HistoryKey,
    HistoryStep,
    SlotStart,
    Sums,
    TrafficSlot,
)
from egressd.model.timelines import Part, Recording, StateChange, TimelineWrite
from egressd.store.connection import BadDatabase
from egressd.store.history_file import FILE, NO_TIMELINES, HistoryFile

T = TypeVar("T")

log = structlog.get_logger()


class HistoryStore:
    """The history's file in `directory`, in a thread of its own.

    A damaged file never fails a call: a new one takes its place, and the call is answered by that
    one. Other faults of the disk raise Failed.
    """

    def __init__(self, directory: Path) -> None:
        self._file = HistoryFile(directory / FILE)
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="history")
        self.set_aside = 0
        """Damaged files that were set aside since the start."""

    async def open(self) -> Sequence[HistoryKey]:
        """Return the keys that are stored."""
        return await self._do(self._file.open)

    async def starts(self, step: HistoryStep) -> Sequence[int]:
        """Return the starts of the slots that are stored, in the order in which they came."""
        return await self._do(lambda: self._file.starts(step))

    async def growing(self, step: HistoryStep) -> Sequence[int]:
        """Return the starts of the slots that may lack what came after their last write."""
        return await self._do(lambda: self._file.growing(step))

    async def slot(self, step: HistoryStep, start: int) -> Mapping[int, bytes]:
        """Return the blocks of a slot; empty if it is not stored."""
        return await self._do(lambda: self._file.slot(step, start))

    async def write(
        self,
        slots: Sequence[TrafficSlot],
        keys: Sequence[HistoryKey],
        growing: Collection[SlotStart] = (),
        timelines: TimelineWrite = NO_TIMELINES,
    ) -> None:
        """Store slots, keys and changes of state, in one write. `growing`: slots that more is added
        to.
        """
        await self._do(lambda: self._file.write(slots, keys, growing, timelines))

    async def states(self) -> tuple[Sequence[StateChange], Sequence[Recording]]:
        """Return the last change of state of each part, and the recordings in their order."""
        return await self._do(self._file.states)

    async def changes(self, part: Part, number: int | None, start: int) -> Sequence[StateChange]:
        """Return the changes of one part, or of all of a kind, from a Unix time on, and the last
        one of each before.
        """
        return await self._do(lambda: self._file.changes(part, number, start))

    async def delays(self, step: HistoryStep, starts: range) -> dict[int, bytes]:
        """Return the blocks of nodes' delays of the slots that begin in `starts`."""
        return await self._do(lambda: self._file.delays(step, starts))

    async def series(
        self, step: HistoryStep, by: By, number: int, starts: range
    ) -> dict[int, Exchanged]:
        """Return the bytes of a key, by the start of each slot that is stored."""
        return await self._do(lambda: self._file.series(step, by, number, starts))

    async def sums(self, step: HistoryStep, by: By, starts: Sequence[int]) -> Sums:
        """Return the sums of all keys of a kind over these slots."""
        return await self._do(lambda: self._file.sums(step, by, starts))

    async def totals(
        self, step: HistoryStep, by: By, since: Mapping[int, int], starts: Sequence[int]
    ) -> dict[int, Exchanged]:
        """Return the sums of some keys over these slots, from the time of each key on."""
        return await self._do(lambda: self._file.totals(step, by, since, starts))

    async def close(self) -> None:
        """Close. The object cannot be used afterwards."""
        await asyncio.get_running_loop().run_in_executor(self._thread, self._file.close)
        self._thread.shutdown()

    async def _do(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, call)

    def _run(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except BadDatabase as error:
            log.error("history file is damaged, and was set aside", error=str(error))
            self.set_aside += 1
            self._file.begin_anew()
            return call()
        except Failed:
            # A disk error can leave a connection unusable.
            self._file.close()
            raise

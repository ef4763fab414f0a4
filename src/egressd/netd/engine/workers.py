"""The workers in their slots: adopted, started when instances want more of them, and ended when
they are empty. `egressd.netd.engine.slots` decides when.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from egressd.model.errors import Failed
from egressd.model.wording import Sentence, say
from egressd.netd.engine import launch, slots
from egressd.netd.engine.document import Document
from egressd.netd.engine.launch import Account
from egressd.netd.engine.slot import SERVICES, Running, Slot
from egressd.netd.engine.slots import SlotView
from egressd.netd.system import orphans
from egressd.netd.system.periodic import PeriodicTask

log = structlog.get_logger()

_NAME: Final = "worker-"
"""Start of the names of a worker's files, before the index of its slot."""
_WAIT_S: Final = 10.0
"""Seconds that a start waits for a worker when none is alive, and none is being started."""
_IDLE_S: Final = 60.0
"""Seconds between looks for empty workers. One that was empty at the last look, too, ends."""


class Workers:
    """Keeps the workers of a run directory: `size` at most, and that of proxy services.

    `on_arrival` is called with a slot that has got a worker, `on_loss` with the instances that went
    down with one, `on_trouble` with the tags of outbounds through which connections fail.
    """

    def __init__(
        self,
        run_dir: Path,
        account: Account,
        size: int,
        *,
        on_arrival: Callable[[Slot], None],
        on_loss: Callable[[list[Running]], None],
        on_trouble: Callable[[Iterable[str]], None],
    ) -> None:
        self._run_dir = run_dir
        self._account = account
        self._size = size
        self._on_arrival = on_arrival
        self._on_loss = on_loss
        self._on_trouble = on_trouble
        self._slots: dict[int, Slot] = {}
        self._changed = asyncio.Event()
        """Set when a slot has got a worker, or an empty one has ended."""
        self._empty: set[int] = set()
        """The slots whose workers were superfluous at the last look."""
        self._ending = PeriodicTask("end empty engine workers", self._end_empty, _IDLE_S)

    # --- Opening and closing. -----------------------------------------------------------------

    async def open(self, instances: int) -> None:
        """Adopt the living workers, and start those that so many instances want: one at least, so
        that the first instance does not wait for it.
        """
        if ended := await asyncio.to_thread(orphans.end, partial(launch.is_stray, self._run_dir)):
            log.warning("ended engine workers unknown to this run directory", pids=ended)
        for lock in self._run_dir.glob("*.lock"):
            launch.remove_files(lock.with_suffix(".sock"))
        for lock in sorted(self._run_dir.glob(f"{_NAME}*.lock")):
            if (number := lock.stem.removeprefix(_NAME)).isdecimal():
                self._open_slot(int(number))
        serving = self._serving()
        missing = slots.wanted(instances, self._size) - len(serving)
        free = (index for index in range(1, self._size + 1) if index not in serving)
        for index in itertools.islice(free, max(missing, 0)):
            self._open_slot(index)
        await asyncio.gather(*(slot.first_try() for slot in self._slots.values()))
        self._ending.start()

    async def close(self) -> None:
        """End every worker, and with them every instance."""
        await self._ending.close()
        await asyncio.gather(*(slot.close() for slot in self._slots.values()))
        self._slots.clear()

    def release(self) -> None:
        """Leave the workers running, for the next netd to adopt."""
        for slot in self._slots.values():
            slot.release()
        self._slots.clear()

    def _open_slot(self, index: int) -> Slot:
        slot = self._slots[index] = Slot(
            index,
            self._socket(index),
            self._account,
            spare=index > self._size,
            on_arrival=self._arrived,
            on_loss=self._on_loss,
            on_trouble=self._on_trouble,
        )
        slot.open()
        return slot

    def _socket(self, index: int) -> Path:
        return self._run_dir / f"{_NAME}{index}.sock"

    def _arrived(self, slot: Slot) -> None:
        self._on_arrival(slot)
        self._changed.set()

    async def _end_empty(self) -> None:
        """End the workers that are superfluous now and were at the last look."""
        empty = slots.superfluous(self._serving())
        services = self._slots.get(SERVICES)
        if services is not None and not services.view().load:
            empty.add(SERVICES)
        ending = {index: self._slots[index] for index in empty & self._empty}
        self._empty = empty - ending.keys()
        for slot in ending.values():  # all of them before the first is waited for
            slot.retire()
        for index, slot in ending.items():
            log.info("an engine worker without instances ends", worker=index)
            await slot.close()
            launch.remove_files(self._socket(index))
            self._slots.pop(index, None)
            self._changed.set()

    # --- Slots. -------------------------------------------------------------------------------

    def __getitem__(self, index: int) -> Slot | None:
        return self._slots.get(index)

    async def slot_for(self, document: Document, action: str) -> Slot:
        """Return the slot that an instance is to start in; wait for a while if there is none.
        Raises Failed, about `action`.

        The caller takes its turn at once, so that it counts when the next slot is chosen.
        """
        try:
            async with asyncio.timeout(_WAIT_S):
                while (slot := self._choose(document)) is None:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            await asyncio.gather(*(slot.attempted() for slot in self._slots.values()))
            if (slot := self._choose(document)) is not None:
                return slot
            why = "; ".join(self.problems()) or "no engine worker runs"
            raise Failed(action, why) from None
        return slot

    def _choose(self, document: Document) -> Slot | None:
        """Return the slot that the instance is to start in, opened if need be; None if there is
        none now.
        """
        if document.is_service:
            slot = self._slots.get(SERVICES) or self._open_slot(SERVICES)
            return slot if slot.view().is_usable else None
        index = slots.choose(document.key, self._serving(), self._size)
        if index is None:
            return None
        return self._slots.get(index) or self._open_slot(index)

    def _serving(self) -> dict[int, SlotView]:
        """Return the state of each slot for clients' targets."""
        return {index: slot.view() for index, slot in self._slots.items() if index != SERVICES}

    # --- Questions. ---------------------------------------------------------------------------

    def pids(self) -> dict[int, int]:
        """Return the process of each living worker, by its slot."""
        workers = ((index, slot.worker) for index, slot in sorted(self._slots.items()))
        return {index: each.pid for index, each in workers if each and not each.ended.done()}

    def problems(self) -> tuple[Sentence, ...]:
        """Return a sentence about each missing worker."""
        return tuple(
            say("worker-fails", n=slot.index, reason=slot.problem)
            for slot in self._slots.values()
            if slot.problem
        )

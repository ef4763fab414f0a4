"""The history: counters and delays are read each minute, and added up in slots.

Slots of minutes are kept in memory. The others are written every ten minutes and at a stop: the
quarter of an hour that still grows, and what has ended since. After a crash the hours and days
that still grew are made again from the finer slots, so that it costs ten minutes at most. The
history is this device's own, also in a pair of gateways or a site: it has what passed this box.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import structlog

from egressd.model.errors import Failed
from egressd.model.history import (
    STORED,
    By,
    Exchanged,
    HistoryStep,
    OpenSlot,
    TrafficSlot,
)
from egressd.model.messages import RuleCount, Status
from egressd.model.nouns import Rule
from egressd.model.wording import Sentence, as_sentence, say
from egressd.service.history_clients import HistoryClients
from egressd.service.history_keys import HistoryKeys
from egressd.service.history_questions import HistoryQuestions
from egressd.service.history_slots import UNWRITTEN_MAX, MemorySlots
from egressd.service.parts import PartStates
from egressd.service.ports import HistoryPort, Netd
from egressd.service.timelines import Timelines

log = structlog.get_logger()

READ_EVERY_S: Final = 60.0
"""Seconds between readings of the counters."""
_FIRST_RETRY_S: Final = 5.0
"""Seconds between attempts at the first reading: at a start netd is not connected yet."""
WRITE_EVERY_S: Final = 600.0
"""Seconds between writes at least: flash memory wears."""
_YIELD_EVERY: Final = 500
"""Rules after which others have their turn: 10,000 clients take 0.1 s."""


class History:
    """Records the traffic, delays and states, about which `questions` are answered."""

    def __init__(
        self,
        netd: Netd,
        store: HistoryPort,
        *,
        rules: Callable[[], Mapping[int, Rule]],
        parts: PartStates,
        now: Callable[[], float],
    ) -> None:
        """`rules` returns the rules by id, `now` the Unix time."""
        self._netd = netd
        self._store = store
        self._rules = rules
        self._clock = now
        self._keys = HistoryKeys()
        self._clients = HistoryClients(rules, self._keys)
        self._parts = parts
        self.timelines = Timelines(store, self._keys, parts.states)
        self._slots = MemorySlots()
        self.questions = HistoryQuestions(
            store,
            self._slots,
            keys=self._keys,
            clients=self._clients,
            timelines=self.timelines,
            now=now,
        )
        self._is_open = False
        self._counted: Mapping[int, RuleCount] | None = None
        self._carried: Mapping[str, Exchanged] = {}
        self._fault: Failed | None = None
        self._set_aside = 0
        self._lock = asyncio.Lock()

    async def follow(self) -> None:
        """Record until cancelled."""
        time = asyncio.get_running_loop().time
        write_at = time() + WRITE_EVERY_S
        while True:
            try:
                await self.read()
                if time() >= write_at:
                    write_at = time() + WRITE_EVERY_S
                    await self.write()
            except Failed as error:
                # Without netd or the disk. Counters keep what is not read.
                log.debug("no history was recorded", error=str(error))
            await asyncio.sleep(_FIRST_RETRY_S if self._counted is None else READ_EVERY_S)

    async def read(self) -> None:
        """Read the counters once, and add what was exchanged since the last time. Raises Failed;
        nothing is lost then, and nothing added.
        """
        counted = await self._netd.counters()
        seen = await self._netd.status()
        carried = {
            each.name: Exchanged(upload=each.sent, download=each.received)
            for each in seen.interfaces
            if each.role  # containers' interfaces come and go under ever other names
        }
        async with self._lock:
            with self._noting():
                await self._recover()
                at = self._clock()
                await self._turn(at)
        self.timelines.look(seen, at)
        self._add_delays(seen, HistoryStep.DAY.start(at))
        counted_before, self._counted = self._counted, counted
        carried_before, self._carried = self._carried, carried
        if counted_before is None:
            return
        rules, day = self._rules(), HistoryStep.DAY.start(at)
        targets: dict[str, Exchanged] = {}
        for nth, (id_, count) in enumerate(counted.items()):
            if nth % _YIELD_EVERY == 0:
                await asyncio.sleep(0)
            rule, before = rules.get(id_), counted_before.get(id_)
            if rule is None or count == before:
                continue
            more = _more(_bytes(count), Exchanged() if before is None else _bytes(before))
            self._add("client", self._clients.key_of(rule), more, day)
            sum_ = targets.get(rule.target_node, Exchanged())
            targets[rule.target_node] = Exchanged(
                sum_.upload + more.upload, sum_.download + more.download
            )
        for target, more in targets.items():
            self._add("target", target, more, day)
        for name, now in carried.items():
            # An interface that was not there before may have counted for long.
            if (earlier := carried_before.get(name)) is not None:
                self._add("interface", name, _more(now, earlier), day)

    def look(self, seen: Status) -> None:
        """Record the states in a status that netd reports, if they have changed."""
        self.timelines.look(seen, self._clock())

    async def write(self, *, is_last: bool = False) -> None:
        """Write what has changed: a stop's write, `is_last`, has the slots of all steps. Raises
        Failed; the next write has it then.
        """
        async with self._lock:
            with self._noting():
                steps = STORED if is_last else (HistoryStep.QUARTER,)
                slots = self._slots.to_write(steps)
                if not slots:
                    return
                await self._write(slots, is_last=is_last)
                if self._store.set_aside != self._set_aside:
                    # The new file has none of the keys before.
                    self._set_aside = self._store.set_aside
                    self._keys.change_all()
                    self.timelines.change_all()
                    await self._write(slots, is_last=is_last)
                self._slots.written()

    async def _write(self, slots: Sequence[TrafficSlot], *, is_last: bool) -> None:
        """Write slots, and what has changed of keys and states: more may change meanwhile."""
        keys, growing = [*self._keys.changed.values()], self._slots.growing()
        states = self.timelines.to_write(is_last=is_last)
        await self._store.write(slots, keys, growing, states)
        self._keys.written(keys)
        self.timelines.written(states)

    async def close(self) -> None:
        """Write all, at a stop. The store is closed, too."""
        try:
            await self.write(is_last=True)
        except Failed as error:
            log.error("the last minutes of the history are lost", error=str(error))
        await self._store.close()

    def problems(self) -> Iterator[Sentence]:
        """Yield why the history is not kept, or not whole."""
        if self._fault is not None:
            yield say("history-unwritten", reason=as_sentence(str(self._fault)))
        if unrecorded := sum(map(len, self._keys.unrecorded.values())):
            yield say("history-full", n=unrecorded)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Note whether the store fails inside."""
        try:
            yield
        except Failed as error:
            if self._fault is None:
                log.error("history cannot be kept", error=str(error))
            self._fault = error
            raise
        self._fault = None

    def _add_delays(self, seen: Status, day: int) -> None:
        for name, ms in self._parts.delays(seen).items():
            if (number := self._keys.number("node", name, day)) is not None:
                self._slots.add_delay(number, ms)

    def _add(self, by: By, name: str, more: Exchanged, day: int) -> None:
        if any(more) and (number := self._keys.number(by, name, day)) is not None:
            self._slots.add(by, number, more)

    async def _turn(self, at: float) -> None:
        """End the slots that the time `at` is not in, and open those that it is in."""
        for step in HistoryStep:
            start = step.start(at)
            slot = self._slots.open.get(step)
            if slot is not None and slot.start == start:
                continue
            if slot is not None:
                self._slots.end(step)
            opened = OpenSlot(start)
            if step is not HistoryStep.MINUTE:
                # It is there after a restart, or when the clock was set back.
                ended = self._slots.ended[step]
                minutes = max(1, int(at - start) // 60)
                opened.add_all(ended.get(start) or await self._store.slot(step, start), minutes)
                ended.pop(start, None)
            self._slots.open[step] = opened

    async def _recover(self) -> None:
        """Read the keys that are stored, and make the hours and days that were not written before
        a crash.
        """
        if self._is_open:
            return
        keys = await self._store.open()
        for finer, step in (
            (HistoryStep.QUARTER, HistoryStep.HOUR),
            (HistoryStep.HOUR, HistoryStep.DAY),
        ):
            # A slot that grew when it was written lacks what came later: a stop's, or one that the
            # clock went back to. What it has may be of finer slots that are gone.
            growing = {*await self._store.growing(step)}
            there = {*await self._store.starts(step)} - growing
            missing: dict[int, OpenSlot] = {}
            ended = self._slots.ended[finer]
            for start in dict.fromkeys((*await self._store.starts(finer), *ended)):
                if (whole := step.start(start)) not in there:
                    slot = missing.setdefault(whole, OpenSlot(whole))
                    blocks = ended.get(start)
                    slot.add_all(blocks or await self._store.slot(finer, start), finer.seconds)
            for whole in [*missing][-UNWRITTEN_MAX:]:
                if whole in growing:
                    missing[whole].raise_to(await self._store.slot(step, whole))
                self._slots.ended[step][whole] = missing[whole].blocks()
        self._keys.take(keys)
        await self.timelines.open()
        self._set_aside = self._store.set_aside
        self._is_open = True


def _bytes(count: RuleCount) -> Exchanged:
    return Exchanged(count.up_bytes, count.down_bytes)


def _more(now: Exchanged, before: Exchanged) -> Exchanged:
    """Return what was exchanged between two readings.

    A total has several parts in the kernel, which may begin anew one by one: where one went back,
    this reading is lost, so that nothing counts twice.
    """
    return Exchanged(max(0, now.upload - before.upload), max(0, now.download - before.download))

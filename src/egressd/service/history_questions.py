"""Questions about the history: what memory has and what is stored, as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from egressd.model.errors import Invalid
from egressd.model.faults import Fault
from egressd.model.history import (
    BLOCKS,
    TOP_DAYS_MAX,
    By,
    Exchanged,
    HistoryKey,
    HistoryStep,
    KeyKind,
)
from egressd.model.node_delays import delay_in
from egressd.model.timelines import Part, StateSpan
from egressd.service.history_clients import HistoryClients
from egressd.service.history_keys import HistoryKeys
from egressd.service.history_slots import MemorySlots
from egressd.service.ports import HistoryPort
from egressd.service.timelines import Timelines

_FINE_TOP_S: Final = (6 * 3600, 25 * 3600)
"""Seconds up to which the largest keys are looked for in quarters of an hour, and in hours."""


class Point(NamedTuple):
    """The bytes of one slot."""

    start: int
    exchanged: Exchanged


class Largest(NamedTuple):
    """A key, and the bytes of all slots that were asked for."""

    name: str
    exchanged: Exchanged


@dataclass(frozen=True, kw_only=True)
class HistoryState:
    """The numbers of keys that have a history, and of those that have none."""

    keys: Mapping[KeyKind, int]
    unrecorded: Mapping[KeyKind, int]
    """Keys with traffic or a state today beyond the most that can be kept."""


class HistoryQuestions:
    """Answers questions about what a `History` has recorded, whose parts these are."""

    def __init__(
        self,
        store: HistoryPort,
        slots: MemorySlots,
        *,
        keys: HistoryKeys,
        clients: HistoryClients,
        timelines: Timelines,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._slots = slots
        self._keys = keys
        self._clients = clients
        self._timelines = timelines
        self.now = now
        """Returns the Unix time by which slots are recorded."""

    def state(self) -> HistoryState:
        """Return the numbers of keys."""
        return HistoryState(
            keys={by: len(keys) for by, keys in self._keys.of.items()},
            unrecorded={by: len(names) for by, names in self._keys.unrecorded.items()},
        )

    async def traffic(
        self, by: By, name: str, start: int, end: int, step: HistoryStep | None
    ) -> tuple[HistoryStep, list[Point]]:
        """Return the bytes of a key in each recorded slot that begins from `start` on and before
        `end`, Unix times, and the step: the finest that is kept from `start` on if it is None. A
        key without traffic has zeros. Raises Invalid and Failed.
        """
        _check(start, end)
        step = step or self._finest(start)
        name = self._clients.key_at(name) if by == "client" else name
        key = self._keys.of[by].get(name)
        first = max(step.start(start), 0 if key is None else key.since)
        in_memory = self._slots.exchanged(
            step, by, key
        )  # a write may take them from there meanwhile
        found = await self._stored(step, by, key, range(first, end))
        found |= {at: exchanged for at, exchanged in in_memory if first <= at < end}
        return step, [Point(at, found[at]) for at in sorted(found)]

    async def top(self, by: By, start: int, end: int, limit: int) -> list[Largest]:
        """Return the keys with the most bytes in the slots that begin from `start` on and before
        `end`, Unix times. The slots are quarters of an hour, hours or days, by the length. Raises
        Invalid and Failed.
        """
        _check(start, end)
        _check_length(start, end)
        length = end - start
        fine, middle = _FINE_TOP_S
        step = (
            HistoryStep.QUARTER
            if length <= fine
            else HistoryStep.HOUR
            if length <= middle
            else HistoryStep.DAY
        )
        starts = {*range(step.start(start), end, step.seconds)}
        keys = {key.number: key for key in self._keys.of[by].values()}
        # Of a number that was another's at first, only the slots since then count.
        since = {number: key.since for number, key in keys.items() if key.since > start}
        # A write may take ended slots from memory meanwhile.
        grows, ended = self._slots.open.get(step), dict(self._slots.ended[step])
        later = {number: self._slots.exchanged(step, by, keys[number]) for number in since}
        stored = sorted(starts - ended.keys() - ({grows.start} if grows else set()))
        sums = await self._store.sums(step, by, stored)
        for at in starts & ended.keys():
            for block in BLOCKS[by]:
                if codes := ended[at].get(block):
                    sums.add(block, codes)
        if grows is not None and grows.start in starts:
            grows.add_to(sums, by)
        totals = {
            number: total
            for number, total in sums.largest(by, limit + len(since))
            if number not in since
        }
        if since:
            totals |= await self._store.totals(step, by, since, stored)
        for number, slots in later.items():
            for at, exchanged in slots:
                if at in starts and at >= since[number]:
                    totals[number] = totals[number].plus(exchanged)
        found = [
            Largest(self._shown(by, keys[number].name), total)
            for number, total in totals.items()
            if number in keys and any(total)
        ]
        found.sort(key=lambda each: (-sum(each.exchanged), each.name))
        return found[:limit]

    def _shown(self, by: By, name: str) -> str:
        return self._clients.shown(name) if by == "client" else name

    async def delays(
        self, name: str, start: int, end: int, step: HistoryStep | None
    ) -> tuple[HistoryStep, dict[int, int | None]]:
        """Return the milliseconds of a node in each recorded slot that begins from `start` on and
        before `end`, Unix times, and the step, as `traffic` does; None in a slot in which it was
        not measured. Raises Invalid and Failed.
        """
        _check(start, end)
        step = step or self._finest(start)
        found = await self._delay_blocks(step, range(step.start(start), end))
        key = self._keys.of["node"].get(name)
        if key is None:
            return step, dict.fromkeys(sorted(found))
        return step, {
            at: delay_in(found[at], key.number) if at >= key.since else None for at in sorted(found)
        }

    async def delays_of_all(
        self, start: int, end: int
    ) -> tuple[HistoryStep, range, dict[str, list[int | None]]]:
        """Return the milliseconds of each node that has a history, by name, in each slot that
        begins from `start` on and before `end`; the step, with a few dozen slots at most; and the
        starts of the slots. Raises Invalid and Failed.
        """
        _check(start, end)
        _check_length(start, end)
        step = HistoryStep.HOUR if end - start <= _FINE_TOP_S[1] else HistoryStep.DAY
        starts = range(step.start(start), end, step.seconds)
        found = await self._delay_blocks(step, range(starts.start, end))
        blocks = [(at, found.get(at, b"")) for at in starts]
        return (
            step,
            starts,
            {
                key.name: [
                    delay_in(codes, key.number) if at >= key.since else None for at, codes in blocks
                ]
                for key in self._keys.of["node"].values()
            },
        )

    async def states(self, part: Part, name: str, start: int, end: int) -> list[StateSpan]:
        """Return the states of a part between two Unix times; those of which nothing is known are
        left out. Raises Invalid and Failed.
        """
        _check(start, end)
        return await self._timelines.of(part, name, start, end, self.now())

    async def states_of_all(self, part: Part, start: int, end: int) -> dict[str, list[StateSpan]]:
        """Return the states of all parts of a kind by name, as `states` does. Raises Invalid and
        Failed.
        """
        _check(start, end)
        _check_length(start, end)
        return await self._timelines.of_all(part, start, end, self.now())

    async def _delay_blocks(self, step: HistoryStep, starts: range) -> dict[int, bytes]:
        in_memory = self._slots.delays(step)
        stored = {} if step is HistoryStep.MINUTE else await self._store.delays(step, starts)
        own = {at: codes for at, codes in in_memory.items() if starts.start <= at < starts.stop}
        return {**stored, **own}

    def _finest(self, start: int) -> HistoryStep:
        # One slot more than is kept, since the one that grows is not among them.
        age = self.now() - start
        minutes = self._slots.minutes
        kept = [step for step in HistoryStep if age <= step.seconds * (step.kept + 1)]
        if HistoryStep.MINUTE in kept and not (minutes and minutes[0][0] <= start):
            kept.remove(HistoryStep.MINUTE)  # minutes are in memory, and there are none from before
        return kept[0] if kept else HistoryStep.DAY

    async def _stored(
        self, step: HistoryStep, by: By, key: HistoryKey | None, starts: range
    ) -> dict[int, Exchanged]:
        """Return the stored slots that begin in `starts`, with the bytes of a key."""
        if step is HistoryStep.MINUTE:
            return {}
        if key is not None:
            return await self._store.series(step, by, key.number, starts)
        known = await self._store.starts(step)
        return {at: Exchanged() for at in known if starts.start <= at < starts.stop}


def _check(start: int, end: int) -> None:
    if start >= end:
        raise Invalid(Fault(("from",), "history-order"))


def _check_length(start: int, end: int) -> None:
    if end - start > TOP_DAYS_MAX * 86_400:
        raise Invalid(Fault(("from",), "history-top-days", {"most": TOP_DAYS_MAX}))

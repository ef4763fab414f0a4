"""The history: counters and delays are read each minute, added up in slots, and asked for.

Slots of minutes are kept in memory. The others are written every ten minutes and at a stop: the
quarter of an hour that still grows, and what has ended since. After a crash the hours and days
that still grew are made again from the finer slots, so that it costs ten minutes at most. The
history is this device's own, also in a pair of gateways or a site: it has what passed this box.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

import structlog

from egressd.formats.rows import guarded
from egressd.model.errors import Failed, Invalid
from egressd.model.faults import Fault
from egressd.model.history import (
    BLOCKS,
    DELAY_BLOCK,
    STORED,
    TOP_DAYS_MAX,
    Blocks,
    By,
    Exchanged,
    HistoryKey,
    HistoryStep,
    KeyKind,
    OpenSlot,
    TrafficSlot,
    block_of,
    exchanged_in,
)
from egressd.model.messages import RuleCount, Status
from egressd.model.node_delays import delay_in
from egressd.model.nouns import Rule
from egressd.model.timelines import Part, StateSpan
from egressd.model.wording import Sentence, as_sentence, say
from egressd.service.history_clients import HistoryClients
from egressd.service.history_keys import HistoryKeys
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
_UNWRITTEN_MAX: Final = 16
"""Ended slots of a step that wait for a disk that fails."""
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


class History:
    """Records the traffic, and answers questions about it."""

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
        self._is_open = False
        self._open: dict[HistoryStep, OpenSlot] = {}
        self._ended: dict[HistoryStep, dict[int, Blocks]] = {step: {} for step in STORED}
        self._minutes: deque[tuple[int, Blocks]] = deque(maxlen=HistoryStep.MINUTE.kept)
        self._counted: Mapping[int, RuleCount] | None = None
        self._carried: Mapping[str, Exchanged] = {}
        self._fault: Failed | None = None
        self._set_aside = 0
        self._lock = asyncio.Lock()

    # --- Recording. ----------------------------------------------------------------------

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
                slots = [
                    TrafficSlot(step, start, blocks)
                    for step, ended in self._ended.items()
                    for start, blocks in ended.items()
                ]
                slots += [
                    TrafficSlot(step, slot.start, slot.blocks())
                    for step, slot in self._open.items()
                    if step in steps
                ]
                if not slots:
                    return
                growing = [(step, slot.start) for step, slot in self._open.items()]
                growing = [each for each in growing if each[0] in STORED]
                states = self.timelines.to_write(is_last=is_last)
                await self._store.write(slots, [*self._keys.changed.values()], growing, states)
                self.timelines.written(states)
                if self._store.set_aside != self._set_aside:
                    # The new file has none of the keys before.
                    self._set_aside = self._store.set_aside
                    self._keys.change_all()
                    self.timelines.change_all()
                    states = self.timelines.to_write(is_last=is_last)
                    await self._store.write(slots, [*self._keys.changed.values()], growing, states)
                    self.timelines.written(states)
                self._keys.changed.clear()
                for ended in self._ended.values():
                    ended.clear()

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
                for slot in self._open.values():
                    slot.add_delay(number, ms)

    def _add(self, by: By, name: str, more: Exchanged, day: int) -> None:
        if not any(more) or (number := self._keys.number(by, name, day)) is None:
            return
        for slot in self._open.values():
            slot.add(by, number, more)

    async def _turn(self, at: float) -> None:
        """End the slots that the time `at` is not in, and open those that it is in."""
        for step in HistoryStep:
            start = step.start(at)
            slot = self._open.get(step)
            if slot is not None and slot.start == start:
                continue
            if slot is not None:
                self._end(step, slot)
                del self._open[step]
            opened = OpenSlot(start)
            if step is not HistoryStep.MINUTE:
                # It is there after a restart, or when the clock was set back.
                ended = self._ended[step]
                minutes = max(1, int(at - start) // 60)
                opened.add_all(ended.get(start) or await self._store.slot(step, start), minutes)
                ended.pop(start, None)
            self._open[step] = opened

    def _end(self, step: HistoryStep, slot: OpenSlot) -> None:
        if step is HistoryStep.MINUTE:
            self._minutes.append((slot.start, slot.blocks()))
            return
        ended = self._ended[step]
        ended[slot.start] = slot.blocks()
        while len(ended) > _UNWRITTEN_MAX:
            del ended[next(iter(ended))]

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
            for start in dict.fromkeys((*await self._store.starts(finer), *self._ended[finer])):
                if (whole := step.start(start)) not in there:
                    slot = missing.setdefault(whole, OpenSlot(whole))
                    blocks = self._ended[finer].get(start)
                    slot.add_all(blocks or await self._store.slot(finer, start), finer.seconds)
            for whole in [*missing][-_UNWRITTEN_MAX:]:
                if whole in growing:
                    missing[whole].raise_to(await self._store.slot(step, whole))
                self._ended[step][whole] = missing[whole].blocks()
        self._keys.take(keys)
        await self.timelines.open()
        self._set_aside = self._store.set_aside
        self._is_open = True

    def now(self) -> float:
        """Return the Unix time by which slots are recorded."""
        return self._clock()

    # --- Questions. ----------------------------------------------------------------------

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
        in_memory = self._in_memory(step, by, key)  # a write may take them from there meanwhile
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
        grows, ended = self._open.get(step), dict(self._ended[step])
        later = {number: self._in_memory(step, by, keys[number]) for number in since}
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
        return await self.timelines.of(part, name, start, end, self._clock())

    async def states_of_all(self, part: Part, start: int, end: int) -> dict[str, list[StateSpan]]:
        """Return the states of all parts of a kind by name, as `states` does. Raises Invalid and
        Failed.
        """
        _check(start, end)
        _check_length(start, end)
        return await self.timelines.of_all(part, start, end, self._clock())

    async def _delay_blocks(self, step: HistoryStep, starts: range) -> dict[int, bytes]:
        slots = self._minutes if step is HistoryStep.MINUTE else self._ended[step].items()
        in_memory = {at: blocks.get(DELAY_BLOCK, b"") for at, blocks in slots}
        if (grows := self._open.get(step)) is not None:
            in_memory[grows.start] = grows.blocks().get(DELAY_BLOCK, b"")
        stored = {} if step is HistoryStep.MINUTE else await self._store.delays(step, starts)
        own = {at: codes for at, codes in in_memory.items() if starts.start <= at < starts.stop}
        return {**stored, **own}

    def _finest(self, start: int) -> HistoryStep:
        # One slot more than is kept, since the one that grows is not among them.
        age = self._clock() - start
        kept = [step for step in HistoryStep if age <= step.seconds * (step.kept + 1)]
        if HistoryStep.MINUTE in kept and not (self._minutes and self._minutes[0][0] <= start):
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

    def _in_memory(
        self, step: HistoryStep, by: By, key: HistoryKey | None
    ) -> list[tuple[int, Exchanged]]:
        """Return the slots that memory has, in place of stored ones with their starts, with the
        bytes of a key.
        """
        slots = self._minutes if step is HistoryStep.MINUTE else self._ended[step].items()
        grows = self._open.get(step)
        opened = () if grows is None else (grows,)
        if key is None:
            starts = (*(at for at, _ in slots), *(slot.start for slot in opened))
            return [(at, Exchanged()) for at in starts]
        block, number = block_of(by, key.number), key.number
        return [
            *((at, exchanged_in(blocks.get(block, b""), number)) for at, blocks in slots),
            *((slot.start, slot.exchanged(by, number)) for slot in opened),
        ]


def _check(start: int, end: int) -> None:
    if start >= end:
        raise Invalid(Fault(("from",), "history-order"))


def _check_length(start: int, end: int) -> None:
    if end - start > TOP_DAYS_MAX * 86_400:
        raise Invalid(Fault(("from",), "history-top-days", {"most": TOP_DAYS_MAX}))


def _bytes(count: RuleCount) -> Exchanged:
    return Exchanged(count.up_bytes, count.down_bytes)


def _more(now: Exchanged, before: Exchanged) -> Exchanged:
    """Return what was exchanged between two readings.

    A total has several parts in the kernel, which may begin anew one by one: where one went back,
    this reading is lost, so that nothing counts twice.
    """
    return Exchanged(max(0, now.upload - before.upload), max(0, now.download - before.download))


def as_csv(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return rows below their names as CSV (RFC 4180), which no spreadsheet takes for formulas."""
    lines = (",".join(map(_field, row)) for row in (names, *rows))
    return "".join(f"{line}\r\n" for line in lines)


def _field(value: object) -> str:
    text = guarded(str(value))
    return '"{}"'.format(text.replace('"', '""')) if {*',"\r\n'} & {*text} else text

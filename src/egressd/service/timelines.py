"""Records the states of nodes, lines and groups, and answers questions about them.

States are looked at whenever netd reports a change, and each minute. What has changed is kept in
memory until the next write of the history's file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from egressd.model.history import HistoryKey, HistoryStep
from egressd.model.messages import Status
from egressd.model.timelines import (
    OFF,
    RECORDINGS_MAX,
    Part,
    PartKey,
    Recording,
    SeenPart,
    StateChange,
    StateSpan,
    TimelineWrite,
    member_in,
    state_code,
    state_spans,
)
from egressd.service.history_keys import HistoryKeys
from egressd.service.ports import HistoryPort

GAP_S: Final = 180
"""Seconds without a look after which the states in between count as unknown."""
PENDING_MAX: Final = 8192
"""Changes that wait for a write. A part that changes meanwhile is recorded after it."""
WRITE_MAX: Final = 2048
"""Changes in one write, which takes 100 KB more for them."""
BURST: Final = 8
"""Changes of a part that are recorded at once. See `REFILL_S`."""
REFILL_S: Final = 900
"""Seconds after which one more change of a part is recorded: one that goes up and down all the time
takes no more than 100 changes a day."""


class Timelines:
    """The states of all parts over time."""

    def __init__(
        self,
        store: HistoryPort,
        keys: HistoryKeys,
        states: Callable[[Status], Mapping[PartKey, SeenPart]],
    ) -> None:
        """`states` returns the states of the parts that are in use."""
        self._store = store
        self._keys = keys
        self._states = states
        self._is_open = False
        self._last: dict[PartKey, int] = {}
        """Code of the state that was recorded last. A part of which none is known is not in it."""
        self._allowed: dict[PartKey, tuple[float, float]] = {}
        """Changes that may be recorded, at a Unix time."""
        self._recordings: list[Recording] = []
        self._is_new = False
        """True if this process has begun the last recording."""
        self._pending: list[StateChange] = []
        self._day = 0

    # --- Recording. ----------------------------------------------------------------------

    async def open(self) -> None:
        """Read what is stored. The numbers of the keys have to be known. Raises Failed."""
        changes, recordings = await self._store.states()
        known: dict[tuple[Part, int], HistoryKey] = {}
        for part in ("node", "line", "group"):
            for key in self._keys.of[part].values():
                known[part, key.number] = key
        for change in changes:
            its = known.get((change.part, change.number))
            if its is not None and change.at >= its.since:
                self._last[change.part, its.name] = change.code
        self._recordings = [*recordings]
        self._is_open = True

    def look(self, seen: Status, at: float) -> None:
        """Record what has changed, at a Unix time. Does nothing while hardly anything is known."""
        if not self._is_open or seen.state == "restoring":
            return
        self._record_until(int(at))
        states, day = self._states(seen), HistoryStep.DAY.start(at)
        if day != self._day:
            self._day = day
            for part, name in states:
                self._keys.number(part, name, day)  # it is used this day
        for key, state in states.items():
            self._note(key, self._code(state, day), at, day)
        for key in [key for key, code in self._last.items() if code != OFF and key not in states]:
            self._note(key, OFF, at, day)

    def to_write(self, *, is_last: bool = False) -> TimelineWrite:
        """Return what the next write has. The last one of this process, `is_last`, has all."""
        changes = self._pending if is_last else self._pending[:WRITE_MAX]
        return TimelineWrite([*changes], self._recordings[-1:] if self._is_new else [])

    def written(self, write: TimelineWrite) -> None:
        """Note that this was written."""
        del self._pending[: len(write.changes)]

    def change_all(self) -> None:
        """Have the last state of each part written again: the new file has none."""
        if not self._is_new:
            return
        recording = self._recordings[-1]
        again = []
        for (part, name), code in self._last.items():
            if (number := self._keys.number(part, name, self._day)) is not None:
                again.append(StateChange(part, number, recording.number, recording.begun, code))
        self._pending[:0] = again

    def _record_until(self, at: int) -> None:
        if self._is_new and 0 <= at - self._recordings[-1].seen <= GAP_S:
            self._recordings[-1] = self._recordings[-1]._replace(seen=at)
            return
        number = self._recordings[-1].number + 1 if self._recordings else 1
        self._recordings = [*self._recordings[1 - RECORDINGS_MAX :], Recording(number, at, at)]
        self._is_new = True

    def _code(self, state: SeenPart, day: int) -> int:
        member = self._keys.number("node", state.member, day) if state.member else None
        return state_code(state.is_up, member)

    def _note(self, key: PartKey, code: int, at: float, day: int) -> None:
        if self._last.get(key, OFF) == code or len(self._pending) >= PENDING_MAX:
            return
        number = self._keys.number(*key, day)
        if number is None or not self._may_change(key, at):
            return
        recording = self._recordings[-1].number
        self._pending.append(StateChange(key[0], number, recording, int(at), code))
        self._last[key] = code

    def _may_change(self, key: PartKey, at: float) -> bool:
        left, since = self._allowed.get(key, (float(BURST), at))
        left = min(float(BURST), left + max(0.0, at - since) / REFILL_S)
        self._allowed[key] = (left - 1 if left >= 1 else left, at)
        return left >= 1

    # --- Questions. ----------------------------------------------------------------------

    async def of(self, part: Part, name: str, start: int, end: int, now: float) -> list[StateSpan]:
        """Return the states of a part between two Unix times, up to the time `now`; those of which
        nothing is known are left out. Raises Failed.
        """
        key = self._keys.of[part].get(name)
        if key is None:
            return []
        pending = [each for each in self._pending if each[:2] == (part, key.number)]
        stored = await self._store.changes(part, key.number, start)
        return self._spans(key, [*stored, *pending], start, end, now)

    async def of_all(
        self, part: Part, start: int, end: int, now: float
    ) -> dict[str, list[StateSpan]]:
        """Return the states of all parts of a kind by name, as `of` does. Raises Failed."""
        pending = [each for each in self._pending if each.part == part]
        changes: dict[int, list[StateChange]] = {}
        for change in (*await self._store.changes(part, None, start), *pending):
            changes.setdefault(change.number, []).append(change)
        return {
            key.name: self._spans(key, changes[key.number], start, end, now)
            for key in self._keys.of[part].values()
            if key.number in changes
        }

    def member(self, span: StateSpan) -> str:
        """Return the name of the node that a group had elected; empty without one."""
        number = member_in(span.code)
        if number is None:
            return ""
        for key in self._keys.of["node"].values():
            if key.number == number:
                return key.name if key.since <= span.start else ""
        return ""

    def _spans(
        self, key: HistoryKey, changes: Iterable[StateChange], start: int, end: int, now: float
    ) -> list[StateSpan]:
        own = [change for change in changes if change.at >= key.since]
        recordings = self._recordings
        if self._is_new and 0 <= now - recordings[-1].seen <= GAP_S:
            # A change since the last look would have been reported.
            recordings = [*recordings[:-1], recordings[-1]._replace(seen=int(now))]
        return state_spans(own, recordings, start, end)

"""The states of nodes, lines and groups over time, as changes of state.

A *recording* is a time without a gap in which states were known: it ends with the process, while
netd is away for long, and where the clock jumps. A state holds from its change to the next one of
the same part, within recordings: between two of them nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from egressd.model.node_delays import NODES_MAX

Part: TypeAlias = Literal["node", "line", "group"]
"""A kind of part that has states."""
PartKey: TypeAlias = tuple[Part, str]
"""A kind of part, and its name. A line's name has its type before it: ``l2tp/office``."""
StateName: TypeAlias = Literal["up", "down", "off"]

CHANGES_MAX: Final = 1 << 16
"""Changes that are kept. The last one of each part is kept in addition, however old it is."""
RECORDINGS_MAX: Final = 1024
"""Recordings that are kept: the latest ones."""
_FIRST_NUMBERS: Final[dict[Part, int]] = {"node": 0, "line": NODES_MAX, "group": NODES_MAX + 1000}
PARTS_MAX: Final[dict[Part, int]] = {"node": NODES_MAX, "line": 1000, "group": 1000}
"""Parts of each kind that have a history at most."""
PART_NUMBERS_MAX: Final = NODES_MAX + 2000

OFF: Final = 0
"""The code of a part that is disabled, not in use, or gone."""


class SeenPart(NamedTuple):
    """The state of a part that is in use."""

    is_up: bool
    member: str = ""
    """The node that a group has elected, if there is one for all clients."""


class StateChange(NamedTuple):
    """A new state of a part."""

    part: Part
    number: int
    """The part's number in its kind."""
    recording: int
    at: int
    """Unix time."""
    code: int


class Recording(NamedTuple):
    """A time in which states were known. Its times never fall."""

    number: int
    begun: int
    seen: int
    """Unix time of the last look at the states."""


class TimelineWrite(NamedTuple):
    """Changes of state to write, and the recordings that they are of."""

    changes: Sequence[StateChange] = ()
    recordings: Sequence[Recording] = ()


class StateSpan(NamedTuple):
    """A time in which a part had one state."""

    start: int
    end: int
    code: int

    @property
    def name(self) -> StateName:
        """The state's name."""
        return "off" if self.code == OFF else "up" if is_up(self.code) else "down"


def state_code(is_up: bool, member: int | None = None) -> int:
    """Return the code of a state other than `OFF`. `member` is the number of an elected node."""
    return 1 + int(is_up) + (0 if member is None else 2 * (1 + member))


def is_up(code: int) -> bool:
    """True if the code is that of a part that works."""
    return code != OFF and code % 2 == 0


def member_in(code: int) -> int | None:
    """Return the number of the elected node in a code; None without one."""
    member = (code - 1) // 2
    return member - 1 if member > 0 else None


def part_number(part: Part, number: int) -> int:
    """Return a number that no other part of any kind has."""
    return _FIRST_NUMBERS[part] + number


def part_of(number: int) -> tuple[Part, int]:
    """Return the kind and the number in its kind that `part_number` made one number of."""
    for part in ("group", "line"):
        if number >= _FIRST_NUMBERS[part]:
            return part, number - _FIRST_NUMBERS[part]
    return "node", number


def state_spans(
    changes: Iterable[StateChange], recordings: Sequence[Recording], start: int, end: int
) -> list[StateSpan]:
    """Return the states of one part between two Unix times, the oldest first.

    Changes and recordings are in the order in which they were recorded. Where the clock was set
    back, what was recorded later takes the place of what was before.
    """
    by_recording: dict[int, list[StateChange]] = {}
    for change in changes:
        by_recording.setdefault(change.recording, []).append(change)
    first = recordings[0].number if recordings else 0
    code: int | None = None
    for number in sorted(by_recording):
        if number < first:
            code = by_recording[number][-1].code
    found: list[StateSpan] = []
    for recording in recordings:
        at = recording.begun
        for change in by_recording.get(recording.number, ()):
            if code is not None:
                _put(found, at, change.at, code)
            code, at = change.code, max(at, change.at)
        if code is not None:
            _put(found, at, recording.seen, code)
    clipped = (StateSpan(max(a, start), min(b, end), code) for a, b, code in found)
    return [span for span in clipped if span.start < span.end]


def _put(spans: list[StateSpan], start: int, end: int, code: int) -> None:
    """Append a span, in place of what is there from its start on."""
    if start >= end:
        return
    while spans and spans[-1].start >= start:
        spans.pop()
    if spans and spans[-1].end >= start:
        last = spans.pop()
        if last.code == code:
            start = last.start
        else:
            spans.append(last._replace(end=start))
    spans.append(StateSpan(start, end, code))


def seconds_of(spans: Iterable[StateSpan], start: int, end: int) -> tuple[int, int]:
    """Return the seconds between two times in which a part was up, and down."""
    up = down = 0
    for span in spans:
        seconds = max(0, min(span.end, end) - max(span.start, start))
        if span.code != OFF:
            up, down = (up + seconds, down) if is_up(span.code) else (up, down + seconds)
    return up, down

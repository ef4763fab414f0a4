"""The history of traffic on the wire."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta
from pydantic import BeforeValidator, Field

from egressd.api.wire.answers import Answer
from egressd.api.wire.bodies import Query
from egressd.api.wire.fields import Time, decimal
from egressd.model.errors import Invalid
from egressd.model.faults import Fault
from egressd.model.history import LARGEST_MAX, By, Exchanged, HistoryStep, StepName
from egressd.model.names import LineType
from egressd.model.timelines import StateName

HOURS: Final = 24
"""The length of a window if a query gives none."""


class SpanQuery(Query):
    """The times between which slots begin, or states are asked for."""

    start: Annotated[
        Time | None,
        Field(alias="from", description="The first slot has this time; else hours before to."),
    ] = None
    end: Annotated[
        Time | None, Field(alias="to", description="Slots begin before this time; else now.")
    ] = None
    hours: Annotated[
        int | None,
        Field(ge=1, le=HistoryStep.DAY.kept * 24, strict=True, description="In place of from."),
        BeforeValidator(decimal),
    ] = None

    def window(self, now: float) -> tuple[int, int]:
        """Return the window as Unix times. Raises Invalid."""
        # Slots that begin before it: the one that still grows is among them.
        end = int(now) + 1 if self.end is None else self.end
        if self.start is None:
            return end - 3600 * (HOURS if self.hours is None else self.hours), end
        if self.hours is not None:
            raise Invalid(Fault(("from",), "both-given", {"other": "hours"}))
        return self.start, end


_Step = Annotated[
    StepName | None,
    Field(description="The length of slots; else the shortest that is kept from then on."),
]


class NodeQuery(SpanQuery):
    """The length of slots."""

    step: _Step = None


class WindowQuery(SpanQuery):
    """The kind of key, and the times between which slots begin."""

    by: Annotated[By, Field(description="The kind of the keys.")] = "client"


class TrafficQuery(WindowQuery):
    """The key, and the length of slots."""

    key: Annotated[
        str,
        Field(
            min_length=1,
            max_length=300,
            description="A rule's address, a target, or an interface's name.",
        ),
    ]
    step: _Step = None


class TopQuery(WindowQuery):
    """The number of keys."""

    limit: Annotated[int, Field(ge=1, le=LARGEST_MAX, strict=True), BeforeValidator(decimal)] = 20


class TrafficPoint(Answer, frozen=True, kw_only=True):
    """The traffic of one slot, rounded to three digits."""

    at: Annotated[str, Meta(description="The beginning of the slot.")]
    upload_bytes: Annotated[int, Meta(description="Of an interface: sent.")]
    download_bytes: Annotated[int, Meta(description="Of an interface: received.")]


class WindowAnswer(Answer, frozen=True, kw_only=True, rename={"start": "from", "end": "to"}):
    """The window that was asked for, by the clock of the box."""

    start: Annotated[str, Meta(description="The first slot begins then, or later.")]
    end: Annotated[str, Meta(description="The last slot begins before then.")]


class TrafficHistory(WindowAnswer, frozen=True, kw_only=True):
    """The recorded slots, the oldest first."""

    by: By
    key: str
    step: StepName
    data: Annotated[
        list[TrafficPoint],
        Meta(description="A slot is absent if nothing was recorded at that time."),
    ]


class TopRow(Answer, frozen=True, kw_only=True):
    """The traffic of one key."""

    key: str
    upload_bytes: int
    download_bytes: int

    @classmethod
    def of(cls, key: str, exchanged: Exchanged) -> TopRow:
        """The row of a key."""
        return cls(key=key, upload_bytes=exchanged.upload, download_bytes=exchanged.download)


class TopTraffic(WindowAnswer, frozen=True, kw_only=True):
    """The keys with the most bytes, those first."""

    by: By
    data: list[TopRow]


class RecordedKeys(Answer, frozen=True, kw_only=True):
    """The numbers of keys of one kind."""

    recorded: int
    unrecorded: Annotated[
        int,
        Meta(
            description="Keys with traffic or a state today for which there is no room. At most as"
            " many as can be recorded are counted."
        ),
    ]


class HistorySummary(Answer, frozen=True, kw_only=True):
    """The keys that this box records. In a pair of gateways each box has a history of its own."""

    client: RecordedKeys
    target: RecordedKeys
    interface: RecordedKeys
    node: RecordedKeys
    line: RecordedKeys
    group: RecordedKeys


class PartSpan(Answer, frozen=True, kw_only=True, rename={"start": "from", "end": "to"}):
    """A time in which a node or a line had one state."""

    start: str
    end: str
    state: Annotated[StateName, Meta(description="Off: disabled, gone, or in no use.")]


class GroupSpan(Answer, frozen=True, kw_only=True, rename={"start": "from", "end": "to"}):
    """A time in which a group had one state, and sent its clients to one node."""

    start: str
    end: str
    state: Annotated[StateName, Meta(description="Down: none of its nodes works.")]
    node: Annotated[
        str, Meta(description="The node of all clients; empty if each client has its own.")
    ]


class UpTime(Answer, frozen=True, kw_only=True):
    """The seconds of a time in which a part was up, and down. In the others it was off, or nothing
    was recorded.
    """

    up_s: int
    down_s: int


class NodePoint(UpTime, frozen=True, kw_only=True):
    """A node in one slot."""

    at: Annotated[str, Meta(description="The beginning of the slot.")]
    delay_ms: Annotated[int | None, Meta(description="The mean; null without a measurement.")]


_SPANS = "What is known of its states, the oldest first. In between nothing was recorded."


class NodeHistory(WindowAnswer, frozen=True, kw_only=True):
    """The recorded slots, the oldest first, and the states of a node."""

    name: str
    step: StepName
    data: Annotated[
        list[NodePoint],
        Meta(description="A slot is absent if nothing was recorded at that time."),
    ]
    states: Annotated[list[PartSpan], Meta(description=_SPANS)]


class PartAnswer(WindowAnswer, frozen=True, kw_only=True):
    """The window, and the seconds of it in which the part was up, and down. In the others it was
    off, or nothing was recorded.
    """

    up_s: int
    down_s: int


class LineHistory(PartAnswer, frozen=True, kw_only=True):
    """The states of a line."""

    type: LineType
    name: str
    states: Annotated[list[PartSpan], Meta(description=_SPANS)]


class GroupHistory(PartAnswer, frozen=True, kw_only=True):
    """The states of a group, and the nodes that it has elected."""

    name: str
    states: Annotated[list[GroupSpan], Meta(description=_SPANS)]


class NodeDelayRow(UpTime, frozen=True, kw_only=True):
    """The delays of a node."""

    name: str
    delays: Annotated[
        list[int | None],
        Meta(description="Milliseconds in each slot; null without a measurement."),
    ]


class NodesHistory(WindowAnswer, frozen=True, kw_only=True):
    """The delays of all nodes that were in use."""

    step: StepName
    slots: Annotated[list[str], Meta(description="The beginnings of the slots.")]
    data: list[NodeDelayRow]


class LineTimeline(UpTime, frozen=True, kw_only=True):
    """The states of one line."""

    type: str
    name: str
    states: Annotated[list[PartSpan], Meta(description=_SPANS)]


class LinesHistory(WindowAnswer, frozen=True, kw_only=True):
    """The states of all lines that were enabled."""

    data: list[LineTimeline]

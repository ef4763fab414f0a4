"""The history of traffic on the wire."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta
from pydantic import BeforeValidator, Field

from egressd.api.wire.answers import Answer
from egressd.api.wire.bodies import Query
from egressd.api.wire.fields import Misfit, decimal, form
from egressd.model.errors import Invalid
from egressd.model.faults import Fault
from egressd.model.history import LARGEST_MAX, By, Exchanged, HistoryStep, StepName
from egressd.model.times import is_utc_text, utc_seconds


def _utc(text: object) -> object:
    if not isinstance(text, str) or not is_utc_text(text):
        raise Misfit("utc-time")
    return utc_seconds(text)


Time = Annotated[
    int,
    BeforeValidator(_utc, json_schema_input_type=str),
    Field(json_schema_extra=form("utc-time")),
]
"""A time in UTC as text, as Unix time."""


HOURS: Final = 24
"""The length of a window if a query gives none."""


class WindowQuery(Query):
    """The kind of key, and the times between which slots begin."""

    by: Annotated[By, Field(description="The kind of the keys.")] = "client"
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
    step: Annotated[
        StepName | None,
        Field(description="The length of slots; else the shortest that is kept from then on."),
    ] = None


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
            description="Keys with traffic today for which there is no room. At most as many as"
            " can be recorded are counted."
        ),
    ]


class HistorySummary(Answer, frozen=True, kw_only=True):
    """The keys that this box records. In a pair of gateways each box has a history of its own."""

    client: RecordedKeys
    target: RecordedKeys
    interface: RecordedKeys

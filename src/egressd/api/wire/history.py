"""The history of traffic on the wire."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta
from pydantic import BeforeValidator, Field

from egressd.api.wire.answers import Answer
from egressd.api.wire.bodies import Query
from egressd.api.wire.fields import Misfit, decimal, form
from egressd.model.history import LARGEST_MAX, By, Exchanged, StepName
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


class WindowQuery(Query):
    """The kind of key, and the times between which slots begin."""

    by: Annotated[By, Field(description="The kind of the keys.")] = "client"
    start: Annotated[
        Time | None,
        Field(alias="from", description="The first slot has this time; else a day before to."),
    ] = None
    end: Annotated[
        Time | None, Field(alias="to", description="Slots begin before this time; else now.")
    ] = None

    def window(self, now: float) -> tuple[int, int]:
        """Return the window as Unix times."""
        # Slots that begin before it: the one that still grows is among them.
        end = int(now) + 1 if self.end is None else self.end
        return (end - 86_400 if self.start is None else self.start), end


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


class TrafficHistory(Answer, frozen=True, kw_only=True):
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


class TopTraffic(Answer, frozen=True, kw_only=True):
    """The keys with the most bytes, those first."""

    by: By
    data: list[TopRow]


class RecordedKeys(Answer, frozen=True, kw_only=True):
    """The numbers of keys of one kind."""

    recorded: int
    unrecorded: Annotated[
        int, Meta(description="Keys with traffic today for which there is no room.")
    ]


class HistorySummary(Answer, frozen=True, kw_only=True):
    """The keys that this box records. In a pair of gateways each box has a history of its own."""

    client: RecordedKeys
    target: RecordedKeys
    interface: RecordedKeys

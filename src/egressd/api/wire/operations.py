"""The device as an operator sees and steers it: settings, changes, why, previews, links."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta
from pydantic import BeforeValidator, Field

from egressd.api.wire.answers import Answer
from egressd.api.wire.bodies import Body, Query
from egressd.api.wire.fields import Host, Port, Rows, Target, Url, decimal, form
from egressd.model.bounds import LATEST_EVENTS_MAX
from egressd.model.nouns import Settings
from egressd.model.problem import ProblemError
from egressd.model.wording import Coded, Coding, Sentence
from egressd.service.settings import CHECK_INTERVAL_S


class SettingsReplace(Body):
    """The device's settings, all of them."""

    unmanaged: Target
    delay_url: Url
    check_interval_s: Annotated[int, Field(ge=CHECK_INTERVAL_S[0], le=CHECK_INTERVAL_S[1])]
    group_strategy: Literal["urltest", "fallback", "sticky"]
    sniff_domains: bool

    def settings(self) -> Settings:
        """As `service` takes them."""
        return Settings(**self.model_dump())


class SettingsAnswer(Answer, frozen=True, kw_only=True):
    """The settings in force."""

    unmanaged: Annotated[str, Meta(description="Target of clients without a rule.")]
    delay_url: str
    check_interval_s: int
    group_strategy: str
    sniff_domains: bool


class Confirmation(Body):
    """A word that no caller sends by mistake."""

    confirm: Annotated[str, Field(pattern="^open$", json_schema_extra=form("word-open"))]


class Nothing(Body):
    """No fields."""


class RestoreQuery(Query):
    """The strictness with which a backup is read."""

    older: Annotated[
        bool,
        Field(
            description="Whether names, and nodes, may be such as an older egressd took."
            " Such nodes block their clients."
        ),
    ] = False


class EventsQuery(Query):
    """Seconds between overviews; 0 for none."""

    overview: Annotated[int, Field(ge=0, le=60, strict=True), BeforeValidator(decimal)] = 2


class LatestQuery(Query):
    """The number of events."""

    limit: Annotated[
        int, Field(ge=1, le=LATEST_EVENTS_MAX, strict=True), BeforeValidator(decimal)
    ] = 50


class EventSeen(Answer, frozen=True, kw_only=True):
    """An event that was published."""

    at: str
    topic: Annotated[str, Meta(description="Its kind.")]
    subject: Annotated[str, Meta(description="The object that it is about.")]
    text: str
    code: Annotated[str, Meta(description="What has happened, for programs.")]
    values: Annotated[dict[str, Any], Meta(description="The values in the text, for programs.")]


class EventList(Answer, frozen=True, kw_only=True):
    """Events, the last one first."""

    data: list[EventSeen]


class ExplainQuery(Query):
    """The traffic to explain: its client and its destination."""

    client: Host
    destination: Host
    port: Annotated[int, Field(ge=1, le=65_535, strict=True), BeforeValidator(decimal)] = 443
    protocol: Literal["tcp", "udp"] = "tcp"


class ProbeBody(Body):
    """The same, to be tried."""

    client: Host
    destination: Host
    port: Port = 443
    protocol: Literal["tcp", "udp"] = "tcp"
    url: Annotated[
        Url | None, Field(description="A page that tells the address it is asked from.")
    ] = None


class PreviewRow(Answer, frozen=True, kw_only=True):
    """A row that cannot be used."""

    line: Annotated[int, Meta(description="From 1.")]
    errors: Annotated[
        tuple[ProblemError, ...],
        Meta(description="Each pointer is into the row's fields, by the API's names."),
    ]


class PreviewFate(Answer, frozen=True, kw_only=True):
    """The fate of a row that can be read."""

    line: Annotated[int, Meta(description="From 1.")]
    fate: Annotated[
        Literal["added", "changed", "same", "clash", "twice"],
        Meta(
            description="same: what is there already is equal. clash: something else of that name "
            "is there, and stays. twice: an earlier row has the name."
        ),
    ]
    name: str
    changed: Annotated[
        tuple[str, ...], Meta(description="The fields that differ from what is there.")
    ]


class Preview(Coding, frozen=True, kw_only=True):
    """The result that an import would have."""

    imported: int
    skipped: Annotated[int, Meta(description="Rows that are bad, or there already.")]
    bad: Annotated[int, Meta(description="Rows that are bad.")]
    errors: Annotated[list[str], Meta(description="The first 1,000 bad rows, each with its line.")]
    bad_rows: Annotated[list[PreviewRow], Meta(description="The same, for programs.")]
    notes: Annotated[
        tuple[Sentence, ...],
        Meta(description="What has no effect of rows that are imported, each with its line."),
    ]
    notes_coded: Annotated[tuple[Coded, ...], Meta(description="The same for programs.")] = ()
    fates: Annotated[
        list[PreviewFate],
        Meta(description="Of nodes and lines: the first 1,000 rows that can be read."),
    ]
    removed: Annotated[int, Meta(description="What replacing everything removes.")]
    removed_names: Annotated[tuple[str, ...], Meta(description="The first ten of these.")]


class TextToRecognise(Body):
    """A text to import."""

    text: Annotated[Rows, Field(description="Rows, or a document.")]


class RecognisedText(Answer, frozen=True, kw_only=True):
    """The form of a text to import."""

    type: Annotated[str, Meta(description="The type by which an import reads most of it.")]
    form: Annotated[
        str,
        Meta(
            description="Of nodes: links, base64, clash, singbox, json, wireguard, entries (single "
            "ones of Clash), list (host:port:user:password) or rows; empty if nothing can be read."
        ),
    ]


class NodeLink(Answer, frozen=True, kw_only=True):
    """A node as a share link."""

    name: str
    link: Annotated[str, Meta(description="Empty where none can be made.")]
    lost: Annotated[list[str], Meta(description="What the link has no words for.")]


class NodeLinks(Answer, frozen=True, kw_only=True):
    """All nodes."""

    data: list[NodeLink]

"""Alerts: channels, the policy, and the last messages."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta
from pydantic import AfterValidator, Field

from egressd.api.wire.answers import Answer, Message
from egressd.api.wire.bodies import Body
from egressd.api.wire.fields import ONE_LINE, Id, Misfit, Target, form
from egressd.api.wire.objects import FieldsChange
from egressd.model.alerts import ALERTS, CHANNELS_MAX, FOR_MAX_S, SentAlert
from egressd.model.bounds import ALERT_URL_MAX
from egressd.model.nouns import AlertChannel, AlertPolicy
from egressd.model.wording import Coded, Coding, Sentence
from egressd.service.alert_checks import NAME_MAX
from egressd.service.alerts import ChannelDraft

_NOT_GIVEN: Any = None

Name = Annotated[
    str,
    Field(
        min_length=1,
        max_length=NAME_MAX,
        pattern=ONE_LINE,
        description="Unique.",
    ),
]
ServiceUrl = Annotated[
    str,
    Field(
        max_length=ALERT_URL_MAX,
        pattern=r"^[a-z0-9]{1,20}://[!-~]+$",
        description="A URL of Apprise's. It is a secret, and is never shown again.",
        json_schema_extra=form("alert-url-form"),
    ),
]
Via = Annotated[
    Target,
    Field(
        description="The target that its messages leave by: DIRECT, a node, `Group_…` or "
        "`Interface:…`."
    ),
]


def _known(value: str) -> str:
    if value not in ALERTS:
        raise Misfit("one-of", choices=tuple(ALERTS))
    return value


AlertName = Annotated[
    str,
    Field(json_schema_extra={"enum": [*ALERTS], **form("one-of", choices=tuple(ALERTS))}),
    AfterValidator(_known),
]


class AlertChannelCreate(Body):
    """A new channel."""

    name: Name
    url: ServiceUrl
    via: Via
    is_enabled: bool = True

    def draft(self) -> ChannelDraft:
        """For `service`."""
        return ChannelDraft(**vars(self))


class AlertChannelUpdate(FieldsChange):
    """Some fields of a channel; the others stay."""

    name: Name = _NOT_GIVEN
    url: ServiceUrl = _NOT_GIVEN
    via: Via = _NOT_GIVEN
    is_enabled: bool = _NOT_GIVEN


class AlertChannelRow(Answer, frozen=True, kw_only=True):
    """A channel."""

    id: int
    name: str
    service: Annotated[str, Meta(description="The scheme of its URL.")]
    via: str
    is_enabled: bool
    created_at: str
    waiting: Annotated[int, Meta(description="Alerts that wait on this box to be sent.")]


class AlertChannelSaved(AlertChannelRow, frozen=True, kw_only=True):
    """The channel as it is stored."""

    msg: Message


class AlertChannelRows(Answer, frozen=True, kw_only=True):
    """All channels, by id."""

    data: list[AlertChannelRow]


class AlertPolicyReplace(Body):
    """The whole policy."""

    on: Annotated[list[AlertName], Field(max_length=len(ALERTS), description="What is alerted.")]
    for_s: Annotated[
        int, Field(ge=0, le=FOR_MAX_S, description="Seconds that a state lasts before it is told.")
    ]
    quiet: Annotated[
        str,
        Field(
            pattern=r"^(([01][0-9]|2[0-3]):[0-5][0-9]-([01][0-9]|2[0-3]):[0-5][0-9])?$",
            description="Hours of local time in which alerts wait; empty for none.",
            json_schema_extra=form("alert-hours"),
        ),
    ]
    channels: Annotated[
        list[Id], Field(max_length=CHANNELS_MAX, description="Ids of channels; none for all.")
    ]

    def policy(self) -> AlertPolicy:
        """For `service`."""
        return AlertPolicy(
            on=tuple(dict.fromkeys(self.on)),
            for_s=self.for_s,
            quiet=self.quiet,
            channels=tuple(dict.fromkeys(self.channels)),
        )


class AlertPolicyAnswer(Answer, frozen=True, kw_only=True):
    """The policy."""

    on: tuple[str, ...]
    for_s: int
    quiet: str
    channels: tuple[int, ...]
    names: Annotated[tuple[str, ...], Meta(description="All that can be alerted.")]


class AlertTested(Coding, Answer, frozen=True, kw_only=True):
    """The end of a test."""

    is_sent: bool
    reason: Annotated[Sentence, Meta(description="Why it was not sent; empty if it was.")]
    reason_coded: Coded | None = None


class SentAlerts(Answer, frozen=True, kw_only=True):
    """The last messages of this box, the latest first."""

    data: list[SentAlert]


def channel_row(channel: AlertChannel, waiting: int) -> AlertChannelRow:
    """The channel as lists show it: without its URL, which is a secret."""
    return AlertChannelRow(**_fields(channel, waiting))


def channel_saved(channel: AlertChannel, waiting: int, msg: Message) -> AlertChannelSaved:
    """Return the answer to a change of a channel."""
    return AlertChannelSaved(msg=msg, **_fields(channel, waiting))


def _fields(channel: AlertChannel, waiting: int) -> dict[str, Any]:
    return {
        "id": channel.id,
        "name": channel.name,
        "service": channel.url.partition(":")[0],
        "via": channel.via,
        "is_enabled": channel.is_enabled,
        "created_at": channel.created_at,
        "waiting": waiting,
    }

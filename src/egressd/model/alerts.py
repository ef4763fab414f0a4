"""The events that can be alerted, each with its source; and what became of messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from egressd.model.wording import Coded, Coding, Sentence

State: TypeAlias = Literal["nodes", "lines", "wans"]
"""A part of netd's status that has states of several subjects."""


class AlertSource(msgspec.Struct, frozen=True, kw_only=True):
    """The source of an alert: a state, with a beginning and an end, or an event."""

    state: State | None = None
    problems: frozenset[str] = frozenset()
    """Codes of the sentences of `problems` that are it."""
    topic: str = ""
    """The topic of events that are it, and their `code`."""
    code: str = ""


ALERTS: Final[Mapping[str, AlertSource]] = {
    "node.failing": AlertSource(state="nodes"),
    "line.down": AlertSource(state="lines"),
    "wan.down": AlertSource(state="wans"),
    "device.new": AlertSource(topic="device", code="new"),
    "device.impostor": AlertSource(topic="device", code="impostor"),
    "exit.changed": AlertSource(topic="exit", code="changed"),
    "exit.shared": AlertSource(topic="exit", code="shared"),
    "service.healed": AlertSource(topic="healed", code="healed"),
    "service.restarted": AlertSource(topic="engine", code="lost"),
    "login.failed": AlertSource(problems=frozenset({"password-guessed"})),
    "disk.low": AlertSource(problems=frozenset({"little-disk"})),
    "backup.old": AlertSource(problems=frozenset({"timed-backup-failed", "timed-backup-late"})),
    "subscription.failed": AlertSource(problems=frozenset({"subscription-failing"})),
    "quota.low": AlertSource(
        problems=frozenset({"subscription-quota-low", "subscription-expires"})
    ),
    "member.lost": AlertSource(problems=frozenset({"site-member-away"})),
}
"""Name -> its source. A name without one is not taken."""

_RARELY_WANTED: Final = frozenset({"device.new", "exit.changed", "service.healed"})
DEFAULT_ALERTS: Final = tuple(name for name in ALERTS if name not in _RARELY_WANTED)

FOR_MAX_S: Final = 86_400
CHANNELS_MAX: Final = 32
"""Channels of a device."""
SENT_MAX: Final = 100
"""Messages whose end is remembered."""

SentOutcome: TypeAlias = Literal["sent", "failed", "dropped"]


class SentAlert(Coding, frozen=True, kw_only=True):
    """An attempt to send a message, and what became of it."""

    at: Annotated[str, Meta(description="The time of the attempt.")]
    channel: Annotated[int, Meta(description="The channel's id.")]
    title: str
    alerts: Annotated[int, Meta(description="Alerts in the message; 0 for a test.")]
    outcome: Annotated[
        SentOutcome,
        Meta(
            description="`failed`: it is tried again. `dropped`: no way worked for a day, or more "
            "alerts waited than are kept."
        ),
    ]
    reason: Annotated[Sentence, Meta(description="Why it was not sent; empty if it was.")]
    reason_coded: Coded | None = None

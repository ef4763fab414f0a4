"""The alerts that wait to be sent: what begins and ends, digests, quiet hours, limits. Pure.

All times are Unix times in seconds, which callers pass. Each channel has a queue of its own, so
that one whose target does not work holds up no other. What waits for a channel is one message.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from egressd.model.alerts import SENT_MAX, SentAlert
from egressd.model.names import one_line
from egressd.model.times import utc_text
from egressd.model.wording import Sentence, clean, say

GATHER_S: Final = 10.0
"""Seconds that an alert waits for others, to be one message with them."""
KEPT_S: Final = 86_400.0
"""Seconds for which an alert is kept while no way out works."""
HOUR_S: Final = 3600.0
PER_HOUR: Final = 30
"""Messages within an hour by one channel, at most; each attempt counts."""
RETRY_S: Final = (30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds until a message is tried again; the last one from then on."""
WAITING_MAX: Final = 500
"""Alerts that wait for one channel. Beyond that the oldest are dropped."""
LINES_MAX: Final = 40
"""Alerts that a message names; it says how many more there are."""
_LINE_MAX: Final = 180
"""Characters of an alert's text in a message."""
_MINUTES: Final = 24 * 60

Key = tuple[str, str]
"""The name of an alert, and its subject."""


class Lasting(msgspec.Struct, kw_only=True):
    """A state that lasts, such as a node that fails."""

    since: float
    text: str
    over: str
    """The text for its end."""
    is_told: bool = False


class Waiting(msgspec.Struct, kw_only=True):
    """An alert that waits to be sent."""

    at: float
    text: str


class Queue(msgspec.Struct, kw_only=True):
    """The alerts that wait for one channel."""

    waiting: list[Waiting] = []
    tried_at: list[float] = []
    """The attempts within the last hour."""
    failures: int = 0
    """Attempts that failed since one succeeded."""
    next_at: float = 0.0


class Kept(msgspec.Struct, kw_only=True):
    """The part that outlives a restart."""

    lasting: dict[str, Lasting] = {}
    """``name subject`` -> the state."""
    queues: dict[int, Queue] = {}
    sent: list[SentAlert] = []


class Digest(msgspec.Struct, frozen=True, kw_only=True):
    """A message that is due."""

    channel: int
    title: str
    body: str
    alerts: tuple[Waiting, ...]


def hours_of(quiet: str) -> tuple[int, int] | None:
    """Return the minutes of the day at which quiet hours begin and end; None if there are none."""
    if not quiet:
        return None
    begin, end = (
        int(hour) * 60 + int(minute)
        for hour, minute in (each.split(":") for each in quiet.split("-"))
    )
    return None if begin == end else (begin, end)


def is_quiet(quiet: str, minute: int) -> bool:
    """True if a minute of the day lies within quiet hours, which may pass midnight."""
    hours = hours_of(quiet)
    if hours is None:
        return False
    begin, end = hours
    return (minute - begin) % _MINUTES < (end - begin) % _MINUTES


class AlertBook:
    """The states that last, the queues of channels, and the last messages."""

    def __init__(self, kept: Kept | None = None) -> None:
        self.kept = kept or Kept()
        self.is_changed = False
        """True if `kept` has changed since the caller set it to False."""

    def follow_clock(self, set_by: float, now: float) -> None:
        """Move the times of what lasts and waits with a clock that was set by some seconds. What
        an earlier run has kept may be ahead of it, and is of `now` then.
        """
        for state in self.kept.lasting.values():
            state.since = min(state.since + set_by, now)
        for queue in self.kept.queues.values():
            for alert in queue.waiting:
                alert.at = min(alert.at + set_by, now)
            queue.tried_at = [min(at + set_by, now) for at in queue.tried_at]
            queue.next_at = min(queue.next_at + set_by, now + RETRY_S[-1])

    # --- What happens. --------------------------------------------------------------------------

    def see(
        self,
        names: Collection[str],
        states: Mapping[Key, tuple[Sentence, Sentence]],
        *,
        now: float,
        for_s: float,
        channels: Collection[int],
        is_gone: Callable[[str, str], bool] = lambda name, subject: False,
    ) -> None:
        """Take all states of `names` that last now: key -> the texts for beginning and end. Those
        that last for `for_s` are put in the queues, and so is the end of those that were, unless
        the subject of an alert's name `is_gone`.
        """
        lasting = self.kept.lasting
        for (name, subject), (text, over) in states.items():
            key = f"{name} {subject}"
            if key not in lasting:
                lasting[key] = Lasting(since=now, text=str(text), over=str(over))
                self.is_changed = True
            state = lasting[key]
            if not state.is_told and now - state.since >= for_s:
                state.is_told = True
                self.tell(str(text), now, channels)
        present = {f"{name} {subject}" for name, subject in states}
        for key in [key for key in lasting if key not in present]:
            name, _, subject = key.partition(" ")
            state = lasting.pop(key)
            self.is_changed = True
            if state.is_told and name in names and not is_gone(name, subject):
                self.tell(state.over, now, channels)

    def tell(self, text: str, now: float, channels: Iterable[int]) -> None:
        """Put an alert in the queue of each channel."""
        self.is_changed = True
        # A reason may have the words of another program.
        text = clean(one_line(text))
        for channel in channels:
            queue = self.kept.queues.setdefault(channel, Queue())
            queue.waiting.append(Waiting(at=now, text=text[:_LINE_MAX]))
            self._drop(channel, len(queue.waiting) - WAITING_MAX, now, say("alert-many-wait"))

    def keep_channels(self, channels: Collection[int]) -> None:
        """Forget what waits for channels that are gone, or that get no alerts any more."""
        for channel in [each for each in self.kept.queues if each not in channels]:
            if self.kept.queues[channel].waiting:
                self.is_changed = True
            self.kept.queues[channel].waiting = []

    # --- What is sent. --------------------------------------------------------------------------

    def due(
        self, now: float, *, quiet: bool, host: str, local: Callable[[float], datetime]
    ) -> list[Digest]:
        """Return the messages that are to be sent now, one at most for each channel. The caller
        reports the end of each by `ended`, before it asks for that channel again.
        """
        found = []
        for channel, queue in self.kept.queues.items():
            late = sum(each.at <= now - KEPT_S for each in queue.waiting)
            self._drop(channel, late, now, say("alert-no-way"))
            queue.tried_at = [at for at in queue.tried_at if at > now - HOUR_S]
            if quiet or not queue.waiting or now < queue.next_at:
                continue
            if now - queue.waiting[0].at < GATHER_S or not self.may_try(channel, now):
                continue
            found.append(_digest(channel, queue.waiting, host, local))
        return found

    def may_try(self, channel: int, now: float) -> bool:
        """True if one more message may be sent by a channel within the hour."""
        queue = self.kept.queues.get(channel)
        return queue is None or sum(at > now - HOUR_S for at in queue.tried_at) < PER_HOUR

    def tried(self, channel: int, now: float) -> None:
        """Count an attempt, before it is made."""
        self.kept.queues.setdefault(channel, Queue()).tried_at.append(now)
        self.is_changed = True

    def ended(self, digest: Digest, problem: Sentence, now: float) -> None:
        """Note the end of an attempt; `problem` is empty if the message was sent."""
        queue = self.kept.queues.setdefault(digest.channel, Queue())
        self.record(digest.channel, digest.title, len(digest.alerts), problem, now)
        if not problem:
            gone = {id(each) for each in digest.alerts}
            queue.waiting = [each for each in queue.waiting if id(each) not in gone]
            queue.failures, queue.next_at = 0, now
            return
        queue.next_at = now + RETRY_S[min(queue.failures, len(RETRY_S) - 1)]
        queue.failures += 1

    def record(self, channel: int, title: str, alerts: int, problem: Sentence, now: float) -> None:
        """Remember an attempt."""
        self._note(
            SentAlert(
                at=utc_text(now),
                channel=channel,
                title=title,
                alerts=alerts,
                outcome="failed" if problem else "sent",
                reason=problem,
            )
        )

    def _drop(self, channel: int, number: int, now: float, reason: Sentence) -> None:
        """Drop the oldest alerts of a channel, if the number is not zero or less."""
        queue = self.kept.queues[channel]
        if number <= 0:
            return
        gone, queue.waiting = queue.waiting[:number], queue.waiting[number:]
        last = self.kept.sent[-1] if self.kept.sent else None
        if last is not None and (last.outcome, last.channel) == ("dropped", channel):
            number += last.alerts
            self.kept.sent = self.kept.sent[:-1]
        self._note(
            SentAlert(
                at=utc_text(now),
                channel=channel,
                title=gone[0].text,
                alerts=number,
                outcome="dropped",
                reason=reason,
            )
        )

    def _note(self, sent: SentAlert) -> None:
        self.kept.sent = [*self.kept.sent[1 - SENT_MAX :], sent]
        self.is_changed = True


def _digest(
    channel: int, waiting: list[Waiting], host: str, local: Callable[[float], datetime]
) -> Digest:
    lines = [f"{local(each.at):%Y-%m-%d %H:%M} {each.text}" for each in waiting[:LINES_MAX]]
    if len(waiting) > LINES_MAX:
        lines.append(say("alert-more", n=len(waiting) - LINES_MAX))
    one = waiting[0].text if len(waiting) == 1 else say("alert-several", n=len(waiting))
    return Digest(
        channel=channel,
        title=f"{host}: {one}"[:_LINE_MAX],
        body="\n".join(lines),
        alerts=tuple(waiting),
    )

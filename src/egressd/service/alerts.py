"""Alerts: channels, the policy, and the messages that netd sends by each channel's target.

A message leaves by its channel's target or not at all. The policy and the channels are a part of
the configuration; what waits to be sent is this box's own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, Protocol

import msgspec
import structlog

from egressd.model.alerts import CHANNELS_MAX, SentAlert
from egressd.model.desired import DesiredState, Edit
from egressd.model.device import Resolvers
from egressd.model.drafts import Outcome
from egressd.model.errors import Failed, Invalid, Missing, OverQuota
from egressd.model.faults import Fault, fault
from egressd.model.messages import Event, Status
from egressd.model.nouns import AlertChannel, AlertPolicy
from egressd.model.wording import Sentence, as_sentence, say
from egressd.service import alert_checks, checks
from egressd.service.alert_book import AlertBook, Digest, Kept, is_quiet
from egressd.service.alert_states import event_alert, is_gone, states_of
from egressd.service.errand_paths import errand_paths
from egressd.service.ledger import Ledger, Proposal
from egressd.service.looks import Looks
from egressd.service.ports import Clock, Netd
from egressd.service.versions import demand, revised, tag_of

log = structlog.get_logger()

LOOK_S: Final = 2.0
"""Seconds between looks at what is due."""
PROBLEMS_S: Final = 10.0
"""Seconds between looks at the problems of this box itself."""
_SET_S: Final = 2.0
"""Seconds by which the clock may be wrong between two looks before it counts as set."""
_THING: Final = "alert channel"


class AlertRecord(Protocol):
    """The alerts that wait, over restarts. It may lose them, and raises nothing."""

    async def load(self) -> Kept:
        """Return what was saved last; nothing if that cannot be read."""
        ...

    async def save(self, kept: Kept) -> None:
        """Replace what is stored."""
        ...


class ChannelDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A channel to create or change."""

    name: str
    url: str
    via: str = "DIRECT"
    is_enabled: bool = True

    def __repr__(self) -> str:
        """Return a text without the URL, which is a secret."""
        return f"ChannelDraft(name={self.name!r}, via={self.via!r})"


class Alerts:
    """The channels, the policy, and what is sent.

    `problems` returns the problems of this box itself, `inner` the fault of a URL that names one of
    its addresses or LANs. `host` is the box's name in messages, `now` returns the Unix time,
    `local` the local time of one, and `uptime` seconds that no setting of the clock changes.
    """

    def __init__(
        self,
        ledger: Ledger,
        netd: Netd,
        resolvers: Callable[[], Resolvers],
        *,
        record: AlertRecord,
        clock: Clock,
        problems: Callable[[], Iterable[Sentence]],
        inner: Callable[[str], Iterable[Fault]],
        host: str,
        now: Callable[[], float] = time.time,
        local: Callable[[float], datetime] = datetime.fromtimestamp,
        uptime: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    ) -> None:
        self._ledger = ledger
        self._netd = netd
        self._resolvers = resolvers
        self._record = record
        self._clock = clock
        self._problems = problems
        self._inner = inner
        self._host = host
        self._now = now
        self._local = local
        self._uptime = uptime
        self._booted = now() - uptime()
        """The Unix time of the boot, by the clock as it was last."""
        self._book = AlertBook()
        self._seen: Status | None = None
        self._own: tuple[Sentence, ...] = ()
        self._sending: dict[int, asyncio.Task[None]] = {}

    # --- Channels. ------------------------------------------------------------------------------

    def channels(self) -> list[AlertChannel]:
        """Return all channels, the oldest first."""
        return sorted(self._ledger.state.alert_channels.values(), key=lambda each: each.id)

    def channel(self, channel_id: int) -> AlertChannel:
        """Return a channel. Raises Missing."""
        return _existing(self._ledger.state, channel_id)

    async def create(self, draft: ChannelDraft) -> Outcome[AlertChannel]:
        """Add a channel. Raises Invalid, OverQuota."""

        def build(state: DesiredState) -> Proposal[AlertChannel]:
            checks.refuse(self._faults(draft, state, None))
            if len(state.alert_channels) >= CHANNELS_MAX:
                raise OverQuota(fault("", "alert-channels-many", most=CHANNELS_MAX))
            made = AlertChannel(
                id=state.next_id("alert_channels"),
                created_at=self._clock(),
                **msgspec.structs.asdict(draft),
            )
            return Proposal([Edit("alert_channels", made.id, made)], made)

        return await self._ledger.change(build)

    async def revise(
        self, channel_id: int, fields: Mapping[str, Any], tags: Collection[str] = ()
    ) -> Outcome[AlertChannel]:
        """Give a channel some new fields of `ChannelDraft`. `tags`: see `versions.demand`. Raises
        Invalid, Missing, Outdated.
        """

        def build(state: DesiredState) -> Proposal[AlertChannel]:
            before = _existing(state, channel_id)
            demand(before, tags, _changed(before))
            draft = revised(ChannelDraft, before, fields)
            checks.refuse(self._faults(draft, state, before))
            made = msgspec.structs.replace(before, **msgspec.structs.asdict(draft))
            return Proposal([Edit("alert_channels", made.id, made)], made)

        return await self._ledger.change(build)

    async def delete(self, channel_id: int, tags: Collection[str] = ()) -> Outcome[AlertChannel]:
        """Remove a channel, and return it. What waits for it is forgotten. Raises Missing,
        Outdated.
        """

        def build(state: DesiredState) -> Proposal[AlertChannel]:
            before = _existing(state, channel_id)
            demand(before, tags, _changed(before))
            return Proposal([Edit("alert_channels", channel_id, None)], before)

        return await self._ledger.change(build)

    def _faults(
        self, draft: ChannelDraft, state: DesiredState, before: AlertChannel | None
    ) -> Iterable[Fault]:
        yield from checks.text("name", draft.name, alert_checks.NAME_MAX, least=1)
        if before is None or draft.name != before.name:
            names = (each.name for each in state.alert_channels.values() if each is not before)
            yield from Looks(_THING, names).problems(draft.name)
            if draft.name in state.alert_channel_by_name:
                yield fault("name", "name-taken", thing=_THING, name=draft.name)
        if before is None or draft.url != before.url:
            found = [*alert_checks.url_problems(draft.url)]
            yield from found or self._inner(draft.url)
        yield from alert_checks.blocking_problems(draft.via)
        if before is None or draft.via != before.via:
            yield from checks.target("via", draft.via, state)

    # --- The policy. ----------------------------------------------------------------------------

    def policy(self) -> AlertPolicy:
        """Return the policy."""
        return self._ledger.state.settings.alerts

    @property
    def policy_tag(self) -> str:
        """The tag of the policy's version."""
        return tag_of(self.policy())

    async def put_policy(
        self, policy: AlertPolicy, tags: Collection[str] = ()
    ) -> Outcome[AlertPolicy]:
        """Replace the policy. `tags`: see `versions.demand`. Raises Invalid, Outdated."""

        def build(state: DesiredState) -> Proposal[AlertPolicy]:
            demand(state.settings.alerts, tags, fault("", "alerts-changed"))
            checks.refuse(
                [
                    *alert_checks.policy_problems(policy),
                    *(
                        fault("channels", "alert-no-channel", id=channel)
                        for channel in policy.channels
                        if channel not in state.alert_channels
                    ),
                ]
            )
            settings = msgspec.structs.replace(state.settings, alerts=policy)
            return Proposal([Edit("settings", 0, settings)], policy)

        return await self._ledger.change(build)

    # --- Messages. ------------------------------------------------------------------------------

    def sent(self) -> Sequence[SentAlert]:
        """Return the last messages, the latest first."""
        return self._book.kept.sent[::-1]

    def waiting(self) -> dict[int, int]:
        """Return the number of alerts that wait, by the ids of channels."""
        queues = self._book.kept.queues
        return {channel: len(queue.waiting) for channel, queue in queues.items() if queue.waiting}

    async def test(self, channel_id: int) -> Sentence:
        """Send a message by a channel at once, enabled or not. Return the reason why it was not
        sent; empty if it was. Raises Missing, and Invalid beyond the channel's messages an hour.
        """
        channel = self.channel(channel_id)
        now = self._time()
        if not self._book.may_try(channel_id, now):
            raise Invalid(fault("", "alert-enough", name=channel.name))
        self._book.tried(channel_id, now)
        title, body = say("alert-test-title", host=self._host), say("alert-test", via=channel.via)
        problem = await self._send(channel, title, body)
        self._book.record(channel_id, title, 0, problem, self._time())
        await self._save()
        return problem

    def look(self, seen: Status) -> None:
        """Take netd's status of the device."""
        self._seen = seen

    def look_around(self) -> None:
        """Take the problems of this box itself."""
        self._own = tuple(self._problems())

    def take(self, event: Event) -> None:
        """Take an event, as all listeners get it."""
        name = event_alert(event)
        if name is not None and name in self.policy().on and self._is_sender():
            self._book.tell(event.text, self._time(), self._chosen())

    async def open(self) -> None:
        """Read what an earlier run has recorded."""
        book = AlertBook(await self._record.load())
        book.follow_clock(0, self._time())
        self._book = book

    async def follow(self) -> None:
        """Send what is due, again and again. Has no end of its own."""
        await self.open()
        clock = asyncio.get_running_loop().time
        look_at = 0.0
        try:
            while True:
                if clock() >= look_at:
                    self.look_around()
                    look_at = clock() + PROBLEMS_S
                await self.step()
                await asyncio.sleep(LOOK_S)
        finally:
            for task in self._sending.values():
                task.cancel()
            await self._save()

    async def step(self) -> None:
        """Look once, and begin to send what is due."""
        if not self._is_sender():
            return
        now, policy, channels = self._time(), self.policy(), self._chosen()
        state = self._ledger.state
        if self._seen is not None and self._seen.state == "running":
            states = states_of(policy.on, self._seen, state, self._own)
            self._book.see(
                policy.on,
                states,
                now=now,
                for_s=policy.for_s,
                channels=channels,
                is_gone=lambda name, subject: is_gone(name, subject, state),
            )
        self._book.keep_channels(channels)
        local = self._local(now)
        quiet = is_quiet(policy.quiet, local.hour * 60 + local.minute)
        for digest in self._book.due(now, quiet=quiet, host=self._host, local=self._local):
            channel = digest.channel
            if channel in self._sending:
                continue
            self._book.tried(channel, now)
            task = asyncio.create_task(self._send_digest(state.alert_channels[channel], digest))
            self._sending[channel] = task
            task.add_done_callback(partial(self._sent_one, channel))
        if self._book.is_changed:
            await self._save()

    def _time(self) -> float:
        """Return the Unix time. No alert waits longer, or is dropped as too old, because the clock
        was set: it is after each boot of a box that keeps no time while it is off.
        """
        now = self._now()
        booted = now - self._uptime()
        if abs(booted - self._booted) > _SET_S:
            self._book.follow_clock(booted - self._booted, now)
        self._booted = booted
        return now

    def _sent_one(self, channel: int, _: object) -> None:
        self._sending.pop(channel, None)

    async def _send_digest(self, channel: AlertChannel, digest: Digest) -> None:
        problem = await self._send(channel, digest.title, digest.body)
        self._book.ended(digest, problem, self._time())

    async def _send(self, channel: AlertChannel, title: str, body: str) -> Sentence:
        """Send a message by the channel's target, and by nothing else."""
        paths = errand_paths(self._ledger.state, channel.via, self._resolvers(), self._seen)
        if not paths:
            return say("via-gone", via=channel.via)
        try:
            problem = await self._netd.send_alert(paths, channel.url, str(title), str(body))
        except Failed as error:
            problem = as_sentence(str(error))
        if problem:
            log.warning("alert not sent", channel=channel.name, reason=str(problem))
        else:
            log.info("alert sent", channel=channel.name, title=str(title))
        return problem

    def _chosen(self) -> list[int]:
        """Return the ids of the channels that get alerts."""
        policy, channels = self.policy(), self._ledger.state.alert_channels
        chosen = policy.channels or channels
        return [each for each in chosen if each in channels and channels[each].is_enabled]

    def _is_sender(self) -> bool:
        """True unless another box of the pair is active, which sends then."""
        return self._seen is None or self._seen.is_active_box

    async def _save(self) -> None:
        self._book.is_changed = False
        await self._record.save(self._book.kept)


def _existing(state: DesiredState, channel_id: int) -> AlertChannel:
    channel = state.alert_channels.get(channel_id)
    if channel is None:
        raise Missing(fault("id", "no-such-id", thing=_THING, id=channel_id))
    return channel


def _changed(before: AlertChannel) -> Fault:
    return fault("", "changed-since-read", thing=_THING, name=before.name)

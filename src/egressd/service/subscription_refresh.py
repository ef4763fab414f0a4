"""The refresh of a subscription: its list is fetched by its target, read, and put in force."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec
import structlog

from egressd import __version__
from egressd.formats import subscription as formats
from egressd.model.bounds import PAGE_READ_MAX
from egressd.model.desired import DesiredState
from egressd.model.device import Resolvers
from egressd.model.errors import Failed, Invalid, Missing
from egressd.model.faults import fault
from egressd.model.messages import Event, FetchPage, PageFetched, Status
from egressd.model.nouns import Subscription
from egressd.model.subscriptions import ListedFate, Refreshed
from egressd.model.wording import NONE, Sentence, as_sentence, say
from egressd.service.errand_paths import errand_paths
from egressd.service.judge import Notice
from egressd.service.ledger import Ledger, Proposal
from egressd.service.ports import Clock, Netd
from egressd.service.servers import Around
from egressd.service.subscription_checks import headers_of
from egressd.service.subscription_merge import Merge, ReadList, merged, read_list
from egressd.service.subscription_records import FetchRecords

log = structlog.get_logger()

AT_ONCE: Final = 2
"""Lists that are fetched at the same time: netd leaves room for alerts."""
THING: Final = "subscription"
_AGENT: Final = f"egressd/{__version__} (clash; sing-box)"
"""Servers choose the form of a list by the names in it."""


class RefreshResult(NamedTuple):
    """The end of a refresh."""

    reason: Sentence
    """The reason why nothing was refreshed; empty if it was."""
    refreshed: Refreshed = Refreshed()
    fates: tuple[ListedFate, ...] = ()
    notes: tuple[Sentence, ...] = ()


class ListRefresher:
    """Makes the nodes of subscriptions those of their lists. `around` returns the surroundings of
    the device.
    """

    def __init__(
        self,
        ledger: Ledger,
        netd: Netd,
        resolvers: Callable[[], Resolvers],
        records: FetchRecords,
        *,
        clock: Clock,
        around: Around,
        notify: Callable[[Notice], None],
    ) -> None:
        self._ledger = ledger
        self._netd = netd
        self._resolvers = resolvers
        self._records = records
        self._clock = clock
        self._around = around
        self._notify = notify
        self.seen: Status | None = None
        """netd's last status of the device."""
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._refreshing: dict[int, asyncio.Lock] = {}

    def is_busy(self, subscription_id: int) -> bool:
        """True while a list is being refreshed."""
        lock = self._refreshing.get(subscription_id)
        return lock is not None and lock.locked()

    async def refresh(self, subscription_id: int, *, dry_run: bool = False) -> RefreshResult:
        """Fetch a list, and make the nodes here those of the list, as one change; with `dry_run`
        nothing is changed. A list that cannot be fetched or read changes nothing. Raises Missing,
        and Failed if the change cannot be made.
        """
        existing(self._ledger.state, subscription_id)
        async with self._refreshing.setdefault(subscription_id, asyncio.Lock()):
            result = None
            while result is None:
                subscription = existing(self._ledger.state, subscription_id)
                result = await self._refreshed(subscription, dry_run=dry_run)
            return result

    async def _refreshed(
        self, subscription: Subscription, *, dry_run: bool
    ) -> RefreshResult | None:
        """Refresh once; None if the subscription was changed meanwhile so that it is another list
        now.
        """
        try:
            page = await self._fetch(subscription)
            found = await asyncio.to_thread(self._read, page.content, subscription)
            return await self._merge(subscription, page, found, dry_run=dry_run)
        except _Outdated:
            return None
        except (_Unusable, Invalid) as error:
            if _asked(existing(self._ledger.state, subscription.id)) != _asked(subscription):
                return None
            reason = error.reason if isinstance(error, _Unusable) else error.sentence
            if not dry_run:
                await self.note_failure(subscription, reason)
            return RefreshResult(reason)

    async def _fetch(self, subscription: Subscription) -> PageFetched:
        """Fetch a list by its target, and by nothing else. Raises _Unusable."""
        paths = errand_paths(self._ledger.state, subscription.via, self._resolvers(), self.seen)
        if not paths:
            raise _Unusable(say("via-gone", via=subscription.via))
        agent = subscription.user_agent or _AGENT
        asked = FetchPage(
            paths=tuple(paths),
            url=subscription.url,
            headers={"User-Agent": agent, **headers_of(subscription.headers)},
            fields=formats.FIELDS,
            read_max=PAGE_READ_MAX,
        )
        try:
            async with self._turns:
                page = await self._netd.fetch_page(asked)
        except Failed as error:
            raise _Unusable(as_sentence(str(error))) from error
        if page.reason:
            raise _Unusable(page.reason)
        return page

    def _read(self, content: bytes, subscription: Subscription) -> ReadList:
        """Return the nodes of a list. Raises _Unusable, and Invalid for too many."""
        try:
            return read_list(formats.nodes_of(content), subscription, self._around())
        except UnicodeDecodeError as error:
            raise _Unusable(say("subscription-no-text")) from error

    async def _merge(
        self, fetched: Subscription, page: PageFetched, found: ReadList, *, dry_run: bool
    ) -> RefreshResult:
        def build(state: DesiredState) -> Proposal[Merge]:
            subscription = existing(state, fetched.id)
            if _asked(subscription) != _asked(fetched):
                raise _Outdated
            merge = merged(state, subscription, found, self._clock())
            return Proposal([*merge.edits], merge)

        if dry_run:
            merge = await self._ledger.preview(build)
            return RefreshResult(NONE, merge.refreshed, merge.fates)
        outcome = await self._ledger.change(build, is_large=True)
        merge = outcome.value
        await self._note_success(fetched, page, merge.refreshed)
        return RefreshResult(NONE, merge.refreshed, merge.fates, outcome.notes)

    async def _note_success(
        self, subscription: Subscription, page: PageFetched, refreshed: Refreshed
    ) -> None:
        name = subscription.name
        log.info("subscription refreshed", name=name, **msgspec.structs.asdict(refreshed))
        if await self._records.succeed(subscription, page, refreshed):
            self._tell("again", say("subscription-again", name=name), subscription)
        if refreshed.added or refreshed.changed or refreshed.renamed or refreshed.gone:
            self._tell("refreshed", refreshed_text(name, refreshed), subscription)

    async def note_failure(self, subscription: Subscription, reason: Sentence) -> None:
        """Record that a list cannot be fetched or read, and tell of the first time."""
        log.warning("subscription not refreshed", name=subscription.name, reason=str(reason))
        if await self._records.fail(subscription, reason):
            text = say("subscription-failed", name=subscription.name, reason=reason)
            self._tell("failed", text, subscription)

    def _tell(self, code: str, text: Sentence, subscription: Subscription) -> None:
        event = Event(
            topic="subscription",
            subject=subscription.name,
            text=str(text),
            code=code,
            values={"text": text},
        )
        self._notify(Notice(event, is_bad=code == "failed"))


def refreshed_text(name: str, refreshed: Refreshed) -> Sentence:
    """Return a sentence about what a list has changed."""
    return say(
        "subscription-refreshed",
        name=name,
        added=refreshed.added,
        changed=refreshed.changed + refreshed.renamed,
        gone=refreshed.gone,
    )


class _Unusable(Exception):
    """A list that cannot be fetched or read; `reason` says why."""

    def __init__(self, reason: Sentence) -> None:
        super().__init__(str(reason))
        self.reason = reason


class _Outdated(Exception):
    """A list that was fetched is not the subscription's any more."""


def _asked(subscription: Subscription) -> tuple[object, ...]:
    """Return what decides which nodes a list has, and how they are called."""
    return (
        subscription.url,
        subscription.user_agent,
        subscription.headers,
        subscription.via,
        subscription.include,
        subscription.exclude,
        subscription.rename,
    )


def existing(state: DesiredState, subscription_id: int) -> Subscription:
    """Return a subscription. Raises Missing."""
    found = state.subscriptions.get(subscription_id)
    if found is None:
        raise Missing(fault("id", "no-such-id", thing=THING, id=subscription_id))
    return found

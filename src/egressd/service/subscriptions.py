"""Subscriptions: lists of nodes at URLs, fetched by a chosen target, and what they change here.

A list can add nodes, change or remove its own, and nothing else. Rules name nodes by name, so a
list never widens where a client may go.
"""

from __future__ import annotations

import asyncio
import builtins
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import structlog

from egressd import __version__
from egressd.formats import subscription as formats
from egressd.model.bounds import PAGE_READ_MAX
from egressd.model.console import ChangeRecord
from egressd.model.desired import DesiredState, Edit
from egressd.model.device import Resolvers
from egressd.model.drafts import Outcome
from egressd.model.errors import Failed, Invalid, Missing, OverQuota
from egressd.model.faults import Fault, fault
from egressd.model.messages import Event, FetchPage, PageFetched, Status
from egressd.model.nouns import Node, Subscription
from egressd.model.subscriptions import (
    DEFAULT_INTERVAL_S,
    EXPIRY_NEAR_S,
    QUOTA_LOW,
    SUBSCRIPTIONS_MAX,
    FetchRecord,
    LastFetch,
    ListedFate,
    Refreshed,
)
from egressd.model.times import utc_seconds, utc_text
from egressd.model.wording import NONE, Sentence, as_sentence, say
from egressd.service import checks
from egressd.service.authorship import DEVICE, Author, authored
from egressd.service.errand_paths import errand_paths
from egressd.service.judge import Notice
from egressd.service.ledger import Ledger, Proposal
from egressd.service.looks import Looks
from egressd.service.ports import Clock, Netd
from egressd.service.servers import Around
from egressd.service.subscription_checks import (
    SubscriptionDraft,
    field_problems,
    headers_of,
    inner_problems,
)
from egressd.service.subscription_merge import Merge, ReadList, merged, read_list
from egressd.service.versions import demand, revised, tag_of

log = structlog.get_logger()

LOOK_S: Final = 5.0
"""Seconds between looks at what is due."""
RETRY_S: Final = 900
"""Seconds after which a fetch that failed is tried again."""
AT_ONCE: Final = 2
"""Lists that are fetched at the same time: netd leaves room for alerts."""
_THING: Final = "subscription"
_AGENT: Final = f"egressd/{__version__} (clash; sing-box)"
"""Servers choose the form of a list by the names in it."""


class FetchStore(Protocol):
    """The records of lists, over restarts. It may lose them, and raises nothing."""

    async def load(self) -> Mapping[int, FetchRecord]:
        """Return what was saved last, by the ids of subscriptions; nothing if it cannot be read."""
        ...

    async def save(self, known: Mapping[int, FetchRecord]) -> None:
        """Replace what is stored."""
        ...


class RefreshResult(NamedTuple):
    """The end of a refresh."""

    reason: Sentence
    """The reason why nothing was refreshed; empty if it was."""
    refreshed: Refreshed = Refreshed()
    fates: tuple[ListedFate, ...] = ()
    notes: tuple[Sentence, ...] = ()


class Subscriptions:
    """The use cases of subscriptions, and the fetches by the clock.

    `around` returns the surroundings of the device, `now` the Unix time. `note` is called with each
    change that the clock has made, and the kind of thing that changed.
    """

    def __init__(
        self,
        ledger: Ledger,
        netd: Netd,
        resolvers: Callable[[], Resolvers],
        *,
        store: FetchStore,
        clock: Clock,
        around: Around,
        notify: Callable[[Notice], None],
        note: Callable[[ChangeRecord, str], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self._ledger = ledger
        self._netd = netd
        self._resolvers = resolvers
        self._store = store
        self._clock = clock
        self._around = around
        self._notify = notify
        self._note = note
        self._now = now
        self._known: dict[int, FetchRecord] = {}
        self._seen: Status | None = None
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._refreshing: dict[int, asyncio.Lock] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._counted_in: Mapping[int, Node] | None = None
        """The nodes that were counted, once for all subscriptions."""
        self._counted: Counter[int] = Counter()
        self._counted_gone: Counter[int] = Counter()

    # --- The resource. --------------------------------------------------------------------------

    def list(self) -> builtins.list[Subscription]:
        """Return all subscriptions, the oldest first."""
        return sorted(self._ledger.state.subscriptions.values(), key=lambda each: each.id)

    def get(self, subscription_id: int) -> Subscription:
        """Return a subscription. Raises Missing."""
        return _existing(self._ledger.state, subscription_id)

    def tag(self, subscription_id: int) -> str:
        """Return the tag of a subscription. Raises Missing."""
        return tag_of(self.get(subscription_id))

    def record(self, subscription_id: int) -> FetchRecord:
        """Return what this box knows of a list; nothing if its URL is another one now."""
        known = self._known.get(subscription_id)
        subscription = self._ledger.state.subscriptions.get(subscription_id)
        if known is None or subscription is None or known.source != _source(subscription):
            return FetchRecord()
        return known

    def nodes_of(self, subscription_id: int) -> tuple[int, int]:
        """Return the number of nodes of a list, and of those that it has no longer."""
        nodes = self._ledger.state.nodes
        if nodes is not self._counted_in:
            every = [node for node in nodes.values() if node.subscription]
            self._counted = Counter(node.subscription for node in every)
            self._counted_gone = Counter(node.subscription for node in every if node.gone_at)
            self._counted_in = nodes
        return self._counted[subscription_id], self._counted_gone[subscription_id]

    def next_at(self, found: Subscription) -> str | None:
        """Return the time of the next fetch by the clock; None if there is none."""
        return utc_text(max(self._due_at(found), self._now())) if found.is_enabled else None

    async def create(self, draft: SubscriptionDraft) -> Outcome[Subscription]:
        """Add a subscription. Raises Invalid, OverQuota."""

        def build(state: DesiredState) -> Proposal[Subscription]:
            checks.refuse(self._faults(draft, state, None))
            if len(state.subscriptions) >= SUBSCRIPTIONS_MAX:
                raise OverQuota(fault("", "subscriptions-many", most=SUBSCRIPTIONS_MAX))
            made = Subscription(
                id=state.next_id("subscriptions"),
                created_at=self._clock(),
                **msgspec.structs.asdict(draft),
            )
            return Proposal([Edit("subscriptions", made.id, made)], made)

        return await self._ledger.change(build)

    async def revise(
        self, subscription_id: int, fields: Mapping[str, Any], tags: Collection[str] = ()
    ) -> Outcome[Subscription]:
        """Give a subscription some new fields of `SubscriptionDraft`. Its nodes that are in its
        group follow to another one. `tags`: see `versions.demand`. Raises Invalid, Missing,
        Outdated.
        """

        def build(state: DesiredState) -> Proposal[Subscription]:
            before = _existing(state, subscription_id)
            demand(before, tags, _changed(before))
            draft = revised(SubscriptionDraft, before, fields)
            checks.refuse(self._faults(draft, state, before))
            made = msgspec.structs.replace(before, **msgspec.structs.asdict(draft))
            edits = [Edit("subscriptions", made.id, made)]
            if made.group != before.group:
                edits += [
                    Edit("nodes", node.id, msgspec.structs.replace(node, group=made.group))
                    for node in _own_nodes(state, made.id)
                    if node.group == before.group
                ]
            return Proposal(edits, made)

        return await self._ledger.change(build)

    async def delete(
        self, subscription_id: int, tags: Collection[str] = (), *, with_nodes: bool = False
    ) -> Outcome[Subscription]:
        """Remove a subscription, and return it. Its nodes stay, as the operator's own, or are
        removed, too. Raises Missing, Outdated.
        """

        def build(state: DesiredState) -> Proposal[Subscription]:
            before = _existing(state, subscription_id)
            demand(before, tags, _changed(before))
            edits = [Edit("subscriptions", subscription_id, None)]
            for node in _own_nodes(state, subscription_id):
                own = msgspec.structs.replace(node, subscription=0, name_there="", gone_at="")
                edits.append(Edit("nodes", node.id, None if with_nodes else own))
            return Proposal(edits, before)

        return await self._ledger.change(build)

    def _faults(
        self, draft: SubscriptionDraft, state: DesiredState, before: Subscription | None
    ) -> Iterator[Fault]:
        yield from field_problems(draft)
        if before is None or draft.name != before.name:
            names = (each.name for each in state.subscriptions.values() if each is not before)
            yield from Looks(_THING, names).problems(draft.name)
            if draft.name in state.subscription_by_name:
                yield fault("name", "name-taken", thing=_THING, name=draft.name)
        if before is None or draft.url != before.url:
            yield from inner_problems(draft.url, self._around())
        if before is None or draft.group != before.group:
            yield from checks.new_group("group", draft.group, state)
        if before is None or draft.via != before.via:
            yield from checks.target("via", draft.via, state)

    # --- Refreshing. ----------------------------------------------------------------------------

    async def refresh(self, subscription_id: int, *, dry_run: bool = False) -> RefreshResult:
        """Fetch a list, and make the nodes here those of the list, as one change; with `dry_run`
        nothing is changed. A list that cannot be fetched or read changes nothing. Raises Missing,
        and Failed if the change cannot be made.
        """
        self.get(subscription_id)
        async with self._refreshing.setdefault(subscription_id, asyncio.Lock()):
            result = None
            while result is None:
                result = await self._refreshed(self.get(subscription_id), dry_run=dry_run)
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
            if _asked(self.get(subscription.id)) != _asked(subscription):
                return None
            reason = error.reason if isinstance(error, _Unusable) else error.sentence
            if not dry_run:
                await self._note_failure(subscription, reason)
            return RefreshResult(reason)

    async def _fetch(self, subscription: Subscription) -> PageFetched:
        """Fetch a list by its target, and by nothing else. Raises _Unusable."""
        paths = errand_paths(self._ledger.state, subscription.via, self._resolvers(), self._seen)
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
        """Return the nodes of a list. Raises _Unusable for one without any."""
        try:
            found = read_list(formats.nodes_of(content), subscription, self._around())
        except UnicodeDecodeError as error:
            raise _Unusable(say("subscription-no-text")) from error
        except Invalid as invalid:
            raise _Unusable(invalid.sentence) from invalid
        if not found.nodes:
            raise _Unusable(say("subscription-empty", n=len(found.passed)))
        return found

    async def _merge(
        self, fetched: Subscription, page: PageFetched, found: ReadList, *, dry_run: bool
    ) -> RefreshResult:
        def build(state: DesiredState) -> Proposal[Merge]:
            subscription = _existing(state, fetched.id)
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
        now = self._now()
        at = utc_text(now)
        before = self.record(subscription.id)
        self._known[subscription.id] = FetchRecord(
            last=LastFetch(at=at, succeeded_at=at, error=NONE, refreshed=refreshed),
            quota=formats.quota_of(page.fields.get(formats.USERINFO, "")),
            interval_s=formats.interval_of(page.fields.get(formats.UPDATE_INTERVAL, "")),
            tried=now,
            source=_source(subscription),
        )
        name = subscription.name
        log.info("subscription refreshed", name=name, **msgspec.structs.asdict(refreshed))
        if before.last.error:
            self._tell("again", say("subscription-again", name=name), subscription)
        if refreshed.added or refreshed.changed or refreshed.renamed or refreshed.gone:
            self._tell("refreshed", refreshed_text(name, refreshed), subscription)
        await self._save()

    async def _note_failure(self, subscription: Subscription, reason: Sentence) -> None:
        now = self._now()
        before = self.record(subscription.id)
        last = msgspec.structs.replace(
            before.last, at=utc_text(now), error=reason, error_coded=None
        )
        self._known[subscription.id] = msgspec.structs.replace(
            before, last=last, tried=now, source=_source(subscription)
        )
        log.warning("subscription not refreshed", name=subscription.name, reason=str(reason))
        if not before.last.error:
            text = say("subscription-failed", name=subscription.name, reason=reason)
            self._tell("failed", text, subscription)
        await self._save()

    def _tell(self, code: str, text: Sentence, subscription: Subscription) -> None:
        event = Event(
            topic="subscription",
            subject=subscription.name,
            text=str(text),
            code=code,
            values={"text": text},
        )
        self._notify(Notice(event, is_bad=code == "failed"))

    # --- The clock. -----------------------------------------------------------------------------

    def look(self, seen: Status) -> None:
        """Take netd's status of the device."""
        self._seen = seen

    async def open(self) -> None:
        """Read what an earlier run has recorded."""
        self._known = dict(await self._store.load())

    async def follow(self) -> None:
        """Refresh what is due, again and again. Has no end of its own."""
        await self.open()
        try:
            while True:
                self.step()
                await asyncio.sleep(LOOK_S)
        finally:
            await self.close()

    def step(self) -> None:
        """Begin to refresh what is due."""
        if not self._is_due_here():
            return
        now = self._now()
        for key, known in self._known.items():
            # A clock that was set back must not put a fetch off.
            self._known[key] = msgspec.structs.replace(known, tried=min(known.tried, now))
        for subscription in self.list():
            lock = self._refreshing.get(subscription.id)
            is_busy = lock is not None and lock.locked()
            if (
                subscription.is_enabled
                and not is_busy
                and self._now() >= self._due_at(subscription)
            ):
                # Noted at once: a fetch that waits for its turn must not begin twice.
                before = self.record(subscription.id)
                self._known[subscription.id] = msgspec.structs.replace(
                    before, tried=self._now(), source=_source(subscription)
                )
                task = asyncio.create_task(self._refresh_by_clock(subscription.id))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def idle(self) -> None:
        """Wait for the refreshes that the clock has begun."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """End the refreshes that are under way."""
        for task in self._tasks:
            task.cancel()
        await self.idle()

    async def _refresh_by_clock(self, subscription_id: int) -> None:
        try:
            name = self.get(subscription_id).name
            with authored(Author(who=DEVICE, what=f"refresh {name}")) as author:
                result = await self.refresh(subscription_id)
            if author.revision is not None:
                self._note_change(author, refreshed_text(name, result.refreshed))
        except Missing:
            return
        except Failed as error:
            if subscription_id in self._ledger.state.subscriptions:
                await self._note_failure(self.get(subscription_id), as_sentence(str(error)))

    def _note_change(self, author: Author, text: Sentence) -> None:
        self._note(
            ChangeRecord(
                at=self._clock(),
                who=author.who,
                source=author.source,
                what=author.what,
                text=text,
                revision=author.revision,
            ),
            "nodes",
        )

    def _due_at(self, subscription: Subscription) -> float:
        """Return the Unix time at which a list is to be fetched."""
        known = self.record(subscription.id)
        interval = subscription.interval_s or known.interval_s or DEFAULT_INTERVAL_S
        wait = min(interval, RETRY_S) if known.last.error else interval
        return known.tried + wait if known.tried else 0.0

    def _is_due_here(self) -> bool:
        """True if this box fetches: it is the active one of a pair, and lets clients through."""
        seen = self._seen
        return seen is not None and seen.state == "running" and seen.pair_role in (None, "active")

    async def _save(self) -> None:
        there = self._ledger.state.subscriptions
        self._known = {key: value for key, value in self._known.items() if key in there}
        await self._store.save(self._known)

    # --- Problems. ------------------------------------------------------------------------------

    def problems(self) -> Iterator[Sentence]:
        """Yield what is wrong with lists: those that cannot be fetched, nodes that are gone and
        used, and quotas that are nearly used up.
        """
        for subscription in self.list():
            known = self.record(subscription.id)
            if subscription.is_enabled and known.last.error:
                yield say("subscription-failing", name=subscription.name, reason=known.last.error)
            if gone := self.nodes_of(subscription.id)[1]:
                yield say("subscription-nodes-gone", name=subscription.name, n=gone)
            yield from self._quota_problems(subscription.name, known)

    def _quota_problems(self, name: str, known: FetchRecord) -> Iterator[Sentence]:
        quota = known.quota
        if quota.used is not None and quota.total and quota.used >= QUOTA_LOW * quota.total:
            percent = min(quota.used * 100 // quota.total, 100)
            yield say("subscription-quota-low", name=name, percent=percent)
        if quota.expires_at and utc_seconds(quota.expires_at) - self._now() < EXPIRY_NEAR_S:
            yield say("subscription-expires", name=name, at=quota.expires_at)


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


def _source(subscription: Subscription) -> str:
    return hashlib.blake2b(subscription.url.encode(), digest_size=16).hexdigest()


def _own_nodes(state: DesiredState, subscription_id: int) -> Iterator[Node]:
    return (node for node in state.nodes.values() if node.subscription == subscription_id)


def _existing(state: DesiredState, subscription_id: int) -> Subscription:
    found = state.subscriptions.get(subscription_id)
    if found is None:
        raise Missing(fault("id", "no-such-id", thing=_THING, id=subscription_id))
    return found


def _changed(before: Subscription) -> Fault:
    return fault("", "changed-since-read", thing=_THING, name=before.name)

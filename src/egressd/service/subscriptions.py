"""Subscriptions: lists of nodes at URLs, fetched by a chosen target, and what they change here.

A list can add nodes, change or remove its own, and nothing else. Rules name nodes by name, so a
list never widens where a client may go.
"""

from __future__ import annotations

import asyncio
import builtins
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from egressd.model.console import ChangeRecord
from egressd.model.desired import DesiredState, Edit
from egressd.model.device import Resolvers
from egressd.model.drafts import Outcome
from egressd.model.errors import Failed, Missing, OverQuota
from egressd.model.faults import Fault, fault
from egressd.model.messages import Status
from egressd.model.nouns import Node, Subscription
from egressd.model.subscriptions import (
    SUBSCRIPTIONS_MAX,
    FetchRecord,
)
from egressd.model.times import utc_text
from egressd.model.wording import Sentence, as_sentence, say
from egressd.service import checks
from egressd.service.authorship import DEVICE, Author, authored
from egressd.service.judge import Notice
from egressd.service.ledger import Ledger, Proposal
from egressd.service.looks import Looks
from egressd.service.ports import Clock, Netd
from egressd.service.servers import Around
from egressd.service.subscription_checks import (
    SubscriptionDraft,
    field_problems,
    inner_problems,
)
from egressd.service.subscription_merge import renamed
from egressd.service.subscription_records import FetchRecords, FetchStore
from egressd.service.subscription_refresh import (
    THING,
    ListRefresher,
    RefreshResult,
    existing,
    refreshed_text,
)
from egressd.service.versions import demand, revised

LOOK_S: Final = 5.0
"""Seconds between looks at what is due."""


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
        self._clock = clock
        self._around = around
        self._note = note
        self._now = now
        self._records = FetchRecords(store, lambda: ledger.state.subscriptions, now)
        self._refresher = ListRefresher(
            ledger, netd, resolvers, self._records, clock=clock, around=around, notify=notify
        )
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
        return existing(self._ledger.state, subscription_id)

    def record(self, subscription: Subscription) -> FetchRecord:
        """Return what this box knows of a list."""
        return self._records.of(subscription)

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
        return utc_text(max(self._records.due_at(found), self._now())) if found.is_enabled else None

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
        group follow to another one, and those that have their names from it get their names by
        another `rename`. `tags`: see `versions.demand`. Raises Invalid, Missing, Outdated.
        """

        def build(state: DesiredState) -> Proposal[Subscription]:
            before = existing(state, subscription_id)
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
            between = state.with_edits(edits, state.revision)
            edits += renamed(between, before, made, self._clock())
            # A node may have another group and another name, and be the subscription's own target.
            last = {(edit.table, edit.key): edit for edit in edits}
            return Proposal([*last.values()], last["subscriptions", made.id].after)

        return await self._ledger.change(build, is_large="rename" in fields)

    async def delete(
        self, subscription_id: int, tags: Collection[str] = (), *, with_nodes: bool = False
    ) -> Outcome[Subscription]:
        """Remove a subscription, and return it. Its nodes stay, as the operator's own, or are
        removed, too. Raises Missing, Outdated.
        """

        def build(state: DesiredState) -> Proposal[Subscription]:
            before = existing(state, subscription_id)
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
            yield from Looks(THING, names).problems(draft.name)
            if draft.name in state.subscription_by_name:
                yield fault("name", "name-taken", thing=THING, name=draft.name)
        if before is None or draft.url != before.url:
            yield from inner_problems(draft.url, self._around())
        if before is None or draft.group != before.group:
            yield from checks.new_group("group", draft.group, state)
        if before is None or draft.via != before.via:
            yield from checks.target("via", draft.via, state)

    async def refresh(self, subscription_id: int, *, dry_run: bool = False) -> RefreshResult:
        """Fetch a list now: see `ListRefresher.refresh`."""
        return await self._refresher.refresh(subscription_id, dry_run=dry_run)

    # --- The clock. -----------------------------------------------------------------------------

    def look(self, seen: Status) -> None:
        """Take netd's status of the device."""
        self._refresher.seen = seen

    async def open(self) -> None:
        """Read what an earlier run has recorded."""
        await self._records.open()

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
        self._records.look_at_clock()
        for subscription in self.list():
            is_due = self._now() >= self._records.due_at(subscription)
            is_busy = self._refresher.is_busy(subscription.id)
            if subscription.is_enabled and is_due and not is_busy:
                self._records.begin(subscription)
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
                reason = as_sentence(str(error))
                await self._refresher.note_failure(self.get(subscription_id), reason)

    def _note_change(self, author: Author, text: Sentence) -> None:
        self._note(
            author.record(self._clock(), text),
            "nodes",
        )

    def _is_due_here(self) -> bool:
        """True if this box fetches: it is the active one of a pair, and lets clients through."""
        seen = self._refresher.seen
        return seen is not None and seen.state == "running" and seen.is_active_box

    # --- Problems. ------------------------------------------------------------------------------

    def problems(self) -> Iterator[Sentence]:
        """Yield what is wrong with lists: those that cannot be fetched, quotas that are nearly used
        up, and nodes that are gone and used.
        """
        for subscription in self.list():
            yield from self._records.problems(subscription)
            if gone := self.nodes_of(subscription.id)[1]:
                yield say("subscription-nodes-gone", name=subscription.name, n=gone)


def _own_nodes(state: DesiredState, subscription_id: int) -> Iterator[Node]:
    return (node for node in state.nodes.values() if node.subscription == subscription_id)


def _changed(before: Subscription) -> Fault:
    return fault("", "changed-since-read", thing=THING, name=before.name)

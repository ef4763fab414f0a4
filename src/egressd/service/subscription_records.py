"""The record of each subscription's list on this box: the last fetch, the quota, the next fetch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final, Protocol

import msgspec

from egressd.formats import subscription as formats
from egressd.model.messages import PageFetched
from egressd.model.nouns import Subscription
from egressd.model.subscriptions import (
    DEFAULT_INTERVAL_S,
    EXPIRY_NEAR_S,
    QUOTA_LOW,
    FetchRecord,
    LastFetch,
    Refreshed,
)
from egressd.model.times import utc_seconds, utc_text
from egressd.model.wording import NONE, Sentence, say

RETRY_S: Final = 900
"""Seconds after which a fetch that failed is tried again."""


class FetchStore(Protocol):
    """The records of lists, over restarts. It may lose them, and raises nothing."""

    async def load(self) -> Mapping[int, FetchRecord]:
        """Return what was saved last, by the ids of subscriptions; nothing if it cannot be read."""
        ...

    async def save(self, known: Mapping[int, FetchRecord]) -> None:
        """Replace what is stored."""
        ...


class FetchRecords:
    """The records of all lists. `there` returns the subscriptions by id, `now` the Unix time."""

    def __init__(
        self,
        store: FetchStore,
        there: Callable[[], Mapping[int, Subscription]],
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._there = there
        self._now = now
        self._known: dict[int, FetchRecord] = {}

    async def open(self) -> None:
        """Read what an earlier run has recorded."""
        self._known = dict(await self._store.load())

    def of(self, subscription: Subscription) -> FetchRecord:
        """Return what is known of a list; nothing if the subscription's URL is another one now."""
        known = self._known.get(subscription.id)
        if known is None or known.source != _source(subscription):
            return FetchRecord()
        return known

    def due_at(self, subscription: Subscription) -> float:
        """Return the Unix time at which a list is to be fetched."""
        known = self.of(subscription)
        interval = subscription.interval_s or known.interval_s or DEFAULT_INTERVAL_S
        wait = min(interval, RETRY_S) if known.last.error else interval
        return known.tried + wait if known.tried else 0.0

    def look_at_clock(self) -> None:
        """Let no clock that was set back put a fetch off."""
        now = self._now()
        for key, known in self._known.items():
            self._known[key] = msgspec.structs.replace(known, tried=min(known.tried, now))

    def begin(self, subscription: Subscription) -> None:
        """Note that a fetch begins: one that waits for its turn must not begin twice."""
        self._put(subscription, self.of(subscription))

    async def succeed(
        self, subscription: Subscription, page: PageFetched, refreshed: Refreshed
    ) -> bool:
        """Note a list that is in force. Return True if the fetch before it failed."""
        before, at = self.of(subscription), utc_text(self._now())
        self._put(
            subscription,
            FetchRecord(
                last=LastFetch(at=at, succeeded_at=at, error=NONE, refreshed=refreshed),
                quota=formats.quota_of(page.fields.get(formats.USERINFO, "")),
                interval_s=formats.interval_of(page.fields.get(formats.UPDATE_INTERVAL, "")),
            ),
        )
        await self._save()
        return bool(before.last.error)

    async def fail(self, subscription: Subscription, reason: Sentence) -> bool:
        """Note a list that cannot be fetched or read. Return True if the one before it could."""
        before = self.of(subscription)
        last = msgspec.structs.replace(
            before.last, at=utc_text(self._now()), error=reason, error_coded=None
        )
        self._put(subscription, msgspec.structs.replace(before, last=last))
        await self._save()
        return not before.last.error

    def problems(self, subscription: Subscription) -> Iterator[Sentence]:
        """Yield what is wrong with a list: a failing fetch, and a quota that is nearly used up."""
        known, name = self.of(subscription), subscription.name
        if subscription.is_enabled and known.last.error:
            yield say("subscription-failing", name=name, reason=known.last.error)
        quota = known.quota
        if quota.used is not None and quota.total and quota.used >= QUOTA_LOW * quota.total:
            percent = min(quota.used * 100 // quota.total, 100)
            yield say("subscription-quota-low", name=name, percent=percent)
        if quota.expires_at and utc_seconds(quota.expires_at) - self._now() < EXPIRY_NEAR_S:
            yield say("subscription-expires", name=name, at=quota.expires_at)

    def _put(self, subscription: Subscription, known: FetchRecord) -> None:
        self._known[subscription.id] = msgspec.structs.replace(
            known, tried=self._now(), source=_source(subscription)
        )

    async def _save(self) -> None:
        there = self._there()
        self._known = {key: value for key, value in self._known.items() if key in there}
        await self._store.save(self._known)


def _source(subscription: Subscription) -> str:
    return hashlib.blake2b(subscription.url.encode(), digest_size=16).hexdigest()

"""The lease of a box of a pair without the site's database, by a clock that the tests set."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from egressd.model.desired import DesiredState, Edit
from egressd.model.nouns import Rule
from egressd.model.site import MemberSeen, SiteReading
from egressd.service.membership import TTL_S, Membership
from egressd.service.peer_lease import SIGHT_S, SILENT_S, START_S, PeerLease, PeerWord

NOW = 1000.0


class Flag:
    def __init__(self, is_set: bool = False) -> None:
        self._is_set = is_set

    def is_set(self) -> bool:
        return self._is_set

    def put(self, is_set: bool) -> None:
        self._is_set = is_set


class Box:
    """A box of a pair, which is a ledger and a pair of links, too."""

    def __init__(
        self, *, alone: bool = True, is_behind: bool = False, is_pair: bool = True
    ) -> None:
        self.now = NOW
        self.state = DesiredState().with_edits([Edit("rules", 1, rule("DIRECT"))], 1)
        self.is_in_force = True
        self.renewed: list[int] = []
        self.behind = Flag(is_behind)
        self._is_listening = asyncio.Event()
        self.membership = Membership()
        self.speak: Callable[[], PeerWord] = cast("Any", None)
        self.hear: Callable[[PeerWord, float], None] = cast("Any", None)
        self.lease = PeerLease(
            self,
            self.membership,
            clock=lambda: self.now,
            renew=self._renew,
            goes_on_alone=alone,
            is_pair=Flag(is_pair),
            is_behind=self.behind,
        )

    async def _renew(self, until_ms: int) -> None:
        self.renewed.append(until_ms)

    def ask(self) -> None:
        pass

    async def answer(
        self, speak: Callable[[], PeerWord], hear: Callable[[PeerWord, float], None]
    ) -> None:
        self.speak, self.hear = speak, hear
        self._is_listening.set()
        await asyncio.Event().wait()

    def reads(self, *others: MemberSeen) -> None:
        """Have an answer of the database, and a lease by it."""
        seen = (MemberSeen(id=1, name="a", n=1), *others)
        reading = SiteReading(me=1, head=1, members=seen, is_beaten=True)
        self.membership.joined(1)
        self.membership.beaten(reading, applied=1, sent_at=self.now, now=self.now)

    async def passes(self, seconds: float) -> None:
        """Let time pass, and then have the box look."""
        self.now += seconds
        await self.lease.look(self)

    @property
    def is_open(self) -> bool:
        return self.membership.has_lease(self.now)

    async def __aenter__(self) -> Box:
        self._running = asyncio.create_task(self.lease.run(self))
        await self._is_listening.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._running.cancel()
        await asyncio.wait({self._running})


def rule(target: str) -> Rule:
    return Rule(id=1, ip="10.0.0.1/32", target_node=target)


def other(number: int = 2) -> MemberSeen:
    return MemberSeen(id=number, name="b", version="1", n=5, applied=1)


BLIND = PeerWord(is_blind=True, is_pair=True)
SEES = PeerWord(is_blind=False, is_pair=True)


async def test_the_word_of_a_blind_box_prolongs_a_lease() -> None:
    async with Box(alone=False) as box:
        box.reads(other())
        await box.passes(SIGHT_S + 0.1)
        assert box.membership.is_blind
        asked_at = box.now - 0.2
        box.hear(BLIND, asked_at)
        await box.passes(0.1)
        assert box.renewed == [int((asked_at + TTL_S) * 1000)]
        assert box.lease.reason == "blind"


async def test_no_word_prolongs_a_lease_that_has_ended() -> None:
    async with Box() as box:
        box.reads(other())
        await box.passes(TTL_S)
        box.hear(BLIND, box.now)
        await box.passes(0.1)
        assert not box.is_open
        assert box.renewed == []


async def test_a_box_with_the_same_state_gets_a_lease_by_a_word() -> None:
    async with Box() as here, Box() as there:
        await here.passes(0)
        await there.passes(0)
        word = there.speak()
        assert word.is_blind
        assert len(word.state) == 32
        here.hear(word, here.now)
        await here.passes(0.1)
        assert here.is_open
    async with Box() as here:
        here.state = here.state.with_edits([Edit("rules", 1, rule("REJECT"))], 1)
        await here.passes(0)
        here.hear(word, here.now)
        await here.passes(0.1)
        assert not here.is_open


async def test_a_state_that_is_not_in_force_counts_for_nothing() -> None:
    async with Box() as here, Box() as there:
        for box in (here, there):
            await box.passes(0)
        there.is_in_force = False
        assert there.speak().state == b""
        there.is_in_force, here.is_in_force = True, False
        here.hear(there.speak(), here.now)
        await here.passes(0.1)
        assert not here.is_open


async def test_a_box_that_sees_the_database_says_so_and_no_state() -> None:
    async with Box() as box:
        box.reads(other())
        await box.passes(0)
        assert box.speak() == PeerWord(is_blind=False, is_pair=True)


async def test_the_word_of_a_box_that_sees_the_database_ends_the_lease() -> None:
    async with Box() as box:
        box.reads(other())
        for _ in range(2):
            box.now += TTL_S / 2
            box.hear(SEES, box.now)
        await box.passes(0.1)
        assert not box.is_open
        await box.passes(START_S + 1)  # it may lack what the other one has changed since
        assert not box.is_open
        assert box.behind.is_set()
        box.reads(other())
        await box.passes(0.1)
        assert not box.behind.is_set()


@pytest.mark.parametrize("alone", [True, False])
async def test_silence_prolongs_a_lease_if_that_is_wanted(alone: bool) -> None:
    async with Box(alone=alone) as box:
        box.reads(other())
        await box.passes(SILENT_S - 0.1)
        assert box.renewed == []
        for _ in range(20):
            await box.passes(0.4)
        assert box.is_open == alone
        assert box.lease.reason == ("silent" if alone else None)


@pytest.mark.parametrize(
    ("box", "is_open"),
    [
        (Box(), True),
        (Box(alone=False), False),
        (Box(is_behind=True), False),
        (Box(is_pair=False), False),
    ],
)
async def test_a_box_begins_alone_after_long_silence(box: Box, is_open: bool) -> None:
    async with box:
        await box.passes(START_S - 0.1)
        assert not box.is_open
        await box.passes(0.2)
        assert box.is_open == is_open


async def test_words_count_in_a_site_of_two_members_alone() -> None:
    for others, word in (
        ((other(), other(3)), BLIND),
        ((other(),), PeerWord(is_blind=True, is_pair=False)),
    ):
        async with Box(alone=False) as box:
            box.reads(*others)
            await box.passes(0)
            await box.passes(SIGHT_S + 0.1)
            box.hear(word, box.now)
            await box.passes(0.1)
            assert box.renewed == []


async def test_an_older_word_does_not_replace_a_newer_one() -> None:
    async with Box(alone=False) as box:
        box.reads(other())
        await box.passes(SIGHT_S + 0.1)
        box.hear(SEES, box.now)
        box.hear(BLIND, box.now - 0.4)
        await box.passes(0.1)
        assert box.renewed == []

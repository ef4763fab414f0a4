"""The lease of a member: by examples, and by random schedules of several members and a database
that crashes.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from egressd.model.site import MemberSeen, SiteReading
from egressd.service.membership import BEAT_S, MARGIN_S, TTL_S, Membership

ME, OTHER, THIRD = 1, 2, 3
SILENCE_S = TTL_S + MARGIN_S


def other(**what: Any) -> MemberSeen:
    return MemberSeen(**{"id": OTHER, "name": "b", "version": "1", "n": 5, "applied": 7, **what})


def reading(*others: MemberSeen, head: int = 7, is_beaten: bool = True) -> SiteReading:
    me = MemberSeen(id=ME, name="a", version="1", n=1)
    return SiteReading(me=ME, head=head, members=(me, *others), is_beaten=is_beaten)


def test_a_lease_lasts_from_the_sending_of_a_beat() -> None:
    member = Membership()
    assert not member.has_lease(0)
    member.joined(7)
    member.beaten(reading(), applied=7, sent_at=10.0, now=12.0)
    assert member.has_lease(10.0 + TTL_S - 0.01)
    assert not member.has_lease(10.0 + TTL_S)


def test_a_beat_before_all_is_in_force_prolongs_no_lease() -> None:
    member = Membership()
    member.joined(7)
    member.beaten(reading(), applied=6, sent_at=10.0, now=10.0)
    assert not member.has_lease(10.0)
    member.beaten(reading(), applied=7, sent_at=11.0, now=11.0)
    assert member.has_lease(11.0)


def test_a_member_in_step_keeps_its_lease_while_it_follows() -> None:
    member = Membership()
    member.joined(7)
    for second in range(8):
        member.beaten(reading(head=9), applied=7, sent_at=second * BEAT_S, now=second * BEAT_S)
    assert member.has_lease(7 * BEAT_S + TTL_S - 0.01)


def test_a_fenced_member_joins_before_it_has_a_lease_again() -> None:
    member = Membership()
    member.joined(7)
    member.beaten(reading(), applied=7, sent_at=0.0, now=0.0)
    member.beaten(reading(is_beaten=False), applied=7, sent_at=1.0, now=1.0)
    assert member.lease_until == TTL_S
    assert not member.has_joined
    member.beaten(reading(), applied=9, sent_at=2.0, now=2.0)
    assert member.lease_until == TTL_S
    member.joined(9)
    member.beaten(reading(), applied=9, sent_at=3.0, now=3.0)
    assert member.has_lease(3.0 + TTL_S - 0.01)


def test_a_late_member_waits_until_it_has_the_change_or_is_seen_as_shut() -> None:
    member = Membership()
    member.joined(7)
    fenced = MemberSeen(id=ME, name="a", version="1", n=1, is_fenced=True)
    for now in (1.0, 2.0):
        answer = SiteReading(me=ME, head=int(8 + now), members=(fenced,))
        member.beaten(answer, applied=7, sent_at=now, now=now)
        assert not member.has_joined
        assert not member.may_join(8, now)
        assert member.may_join(9, now)
    assert not member.may_join(8, 1.0 + SILENCE_S)
    assert member.may_join(8, 1.0 + 2 * SILENCE_S)
    member.joined(10)
    assert member.may_join(7, 3.0)


def test_a_silent_member_is_fenced_when_its_lease_has_run_out() -> None:
    member = Membership()
    member.saw(reading(other()), 0.0)
    member.saw(reading(other(n=6)), 1.0)
    member.saw(reading(other(n=6)), 3.0)
    assert member.quiet(1.0 + SILENCE_S - 0.01) == []
    assert member.quiet(1.0 + SILENCE_S) == [(OTHER, 6)]
    member.saw(reading(other(n=6, is_fenced=True)), 6.0)
    assert member.quiet(7.0) == []


def test_a_member_has_stopped_once_it_is_fenced_and_its_lease_has_run_out() -> None:
    member = Membership()
    member.saw(reading(other(), head=8), 0.0)
    for is_fenced, now, is_stopped in (
        (False, SILENCE_S, False),  # it may beat at any moment
        (True, SILENCE_S - 0.01, False),
        (True, SILENCE_S, True),
    ):
        member.saw(reading(other(is_fenced=is_fenced), head=8), 0.1)
        standing = member.standing(8, now)
        assert [seen.name for seen in standing.shut] == ["b"] * is_stopped
        assert [seen.name for seen in standing.pending] == ["b"] * (not is_stopped)


def test_a_member_whose_beats_were_lost_may_have_beaten_until_then() -> None:
    member = Membership()
    member.saw(reading(other()), 0.0)
    member.saw(reading(other(n=None)), 3.0)
    assert member.standing(8, 3.0 + SILENCE_S - 0.01).pending
    assert member.standing(8, 3.0 + SILENCE_S).shut


def test_after_an_absence_of_the_database_members_are_watched_anew() -> None:
    member = Membership()
    member.saw(reading(other()), 0.0)
    member.lost_sight()
    member.saw(reading(other()), 100.0)
    assert member.quiet(100.0 + SILENCE_S - 0.01) == []
    assert member.quiet(100.0 + SILENCE_S) == [(OTHER, 5)]


def test_a_member_that_has_the_change_is_in_step_even_if_it_is_fenced() -> None:
    member = Membership()
    member.saw(reading(other(is_fenced=True, applied=8)), 0.0)
    standing = member.standing(8, 0.0)
    assert [seen.name for seen in standing.in_step] == ["b"]
    assert not standing.pending


def test_a_member_that_never_started_is_not_waited_for() -> None:
    member = Membership()
    member.saw(reading(other(version="", n=None, applied=0)), 0.0)
    assert member.standing(8, 0.0) == type(member.standing(8, 0.0))()
    assert member.has_others


def test_a_removed_member_is_waited_for_until_its_lease_has_run_out() -> None:
    member = Membership()
    member.saw(reading(other(is_revoked=True, is_fenced=True)), 0.0)
    assert not member.has_others
    assert member.standing(8, SILENCE_S - 0.01).pending
    after = member.standing(8, SILENCE_S)
    assert not after.pending
    assert not after.shut


def test_a_member_without_a_gate_never_counts_as_stopped() -> None:
    member = Membership()
    member.saw(reading(other(is_ungated=True, is_fenced=True)), 0.0)
    assert member.silent_without_gate(SILENCE_S - 0.01) == []
    assert [seen.name for seen in member.silent_without_gate(SILENCE_S)] == ["b"]
    assert member.standing(8, 1000.0).pending


def test_a_member_without_a_gate_that_never_beat_is_waited_for() -> None:
    """The first member lets clients through before its first start as one."""
    member = Membership()
    member.saw(reading(other(is_ungated=True, version="", n=None)), 0.0)
    assert member.standing(8, 1000.0).pending
    assert [seen.name for seen in member.silent_without_gate(SILENCE_S)] == ["b"]


def test_a_removed_member_that_is_invited_again_is_waited_for_as_before() -> None:
    member = Membership()
    member.saw(reading(other(version="")), 0.0)
    assert member.standing(8, SILENCE_S).pending
    assert member.quiet(SILENCE_S) == [(OTHER, 5)]
    member.saw(reading(other(version="", is_fenced=True)), SILENCE_S)
    after = member.standing(8, SILENCE_S)
    assert not after.pending
    assert not after.shut


class Row(msgspec.Struct):
    n: int
    applied: int
    is_fenced: bool = False


class Sent(msgspec.Struct, kw_only=True):
    """A request of a member to the database, which arrives and is answered later."""

    kind: str
    sent_at: float
    applied: int
    answer: Any = None


class Box:
    """A member: its clock, its kernel, and what it waits for."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.zero, self.rate = 1000.0 * number, 1.0 + 0.01 * (number - 2)
        self.membership = Membership()
        self.applied = 0
        self.sent: Sent | None = None
        self.waits_for = 0
        self.answered = 0
        self.asked_at: float | None = None
        """The time of a question to the other members that none has answered yet."""

    def clock(self, now: float) -> float:
        return self.zero + self.rate * now

    def lets_through(self, now: float) -> bool:
        return self.membership.has_lease(self.clock(now))


class Sites(RuleBasedStateMachine):
    """Three members and their database. Requests are lost and late, members stop and go on, and
    the database forgets all beats.
    """

    ACTIONS: ClassVar = st.sampled_from(("beat", "join", "read", "follow"))
    BOXES: ClassVar = st.sampled_from((ME, OTHER, THIRD))

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.head = 0
        self.n = 0
        self.rows: dict[int, Row] = {}
        self.boxes = {number: Box(number) for number in (ME, OTHER, THIRD)}

    @rule(seconds=st.sampled_from((0.01, 0.3, 1.0, 2.0, 4.0, 4.6)))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(number=BOXES)
    def all_is_well(self, number: int) -> None:
        """Let a member do a round of everything at once, so that schedules get anywhere."""
        self.boxes[number].applied = self.head
        for action in ("beat", "join", "beat"):
            self.round_trip(number, action)

    @rule(number=BOXES, kind=st.sampled_from(("beat", "join", "read")))
    def send(self, number: int, kind: str) -> None:
        box = self.boxes[number]
        if box.sent is None and (kind == "join") <= (not box.membership.has_joined):
            box.sent = self.made(box, kind)

    def made(self, box: Box, kind: str) -> Sent:
        return Sent(kind=kind, sent_at=box.clock(self.now), applied=box.applied)

    @rule(number=BOXES)
    def arrive(self, number: int) -> None:
        sent, row = self.boxes[number].sent, self.rows.get(number)
        if sent is None or sent.answer is not None:
            return
        is_beaten = sent.kind == "beat" and row is not None and not row.is_fenced
        if is_beaten:
            assert row is not None
            self.n, row.n, row.applied = self.n + 1, self.n + 1, max(row.applied, sent.applied)
        if sent.kind == "join":
            self.n += 1
            self.rows[number] = Row(self.n, sent.applied)
            sent.answer = self.head
        else:
            sent.answer = self.reading(number, is_beaten)

    def reading(self, number: int, is_beaten: bool) -> SiteReading:
        members = []
        for each in self.boxes:
            seen = MemberSeen(id=each, name=str(each), version="1")
            if row := self.rows.get(each):
                seen = msgspec.structs.replace(seen, **msgspec.structs.asdict(row))
            members.append(seen)
        return SiteReading(me=number, head=self.head, members=tuple(members), is_beaten=is_beaten)

    @rule(number=BOXES)
    def answer(self, number: int) -> None:
        box = self.boxes[number]
        sent, now = box.sent, box.clock(self.now)
        if sent is None or sent.answer is None:
            return
        box.sent = None
        if sent.kind == "join":
            box.membership.joined(sent.answer)
        elif sent.kind == "beat":
            box.membership.beaten(sent.answer, applied=sent.applied, sent_at=sent.sent_at, now=now)
        else:
            box.membership.saw(sent.answer, now)
        if (
            box.waits_for
            and sent.kind == "read"
            and not box.membership.standing(box.waits_for, now).pending
        ):
            box.answered, box.waits_for = box.waits_for, 0

    @rule(number=BOXES)
    def the_connection_breaks(self, number: int) -> None:
        self.boxes[number].sent = None
        self.boxes[number].membership.lost_sight()

    @rule()
    def the_database_crashes(self) -> None:
        self.rows = {}
        for number in self.boxes:
            self.the_connection_breaks(number)

    @rule(number=BOXES)
    def ask_the_others(self, number: int) -> None:
        self.boxes[number].asked_at = self.boxes[number].clock(self.now)

    @rule(number=BOXES)
    def the_others_speak(self, number: int) -> None:
        """Answer a question, which may have been under way for as long as it likes."""
        box, others = self.boxes[number], [b for b in self.boxes.values() if b.number != number]
        if box.asked_at is not None and all(other.membership.is_blind for other in others):
            is_equal = all(other.applied == box.applied for other in others)
            now = box.clock(self.now)
            box.membership.heard(asked_at=box.asked_at, now=now, is_equal=is_equal)
        box.asked_at = None

    @rule(asked=BOXES, seconds=st.sampled_from((0.0, 1.0, 3.9)))
    def words_are_all_that_is_left(self, asked: int, seconds: float) -> None:
        """Let the database go away, and a member ask the others."""
        for number in self.boxes:
            self.the_connection_breaks(number)
        self.ask_the_others(asked)
        self.now += seconds
        self.the_others_speak(asked)

    @rule(number=BOXES)
    def follow(self, number: int) -> None:
        box = self.boxes[number]
        box.applied = min(self.head, box.applied + 1)

    @rule(number=BOXES)
    def acknowledge(self, number: int) -> None:
        if row := self.rows.get(number):
            row.applied = max(row.applied, self.boxes[number].applied)

    @rule(number=BOXES)
    def fence_the_quiet(self, number: int) -> None:
        box = self.boxes[number]
        for member, n in box.membership.quiet(box.clock(self.now)):
            row = self.rows.get(member)
            if row is not None and row.n == n:
                row.is_fenced = True

    @rule(number=BOXES, late=BOXES)
    def fence_the_late(self, number: int, late: int) -> None:
        row, revision = self.rows.get(late), self.boxes[number].waits_for
        if row is not None and revision and row.applied < revision:
            row.is_fenced = True

    @rule(number=BOXES, script=st.lists(st.tuples(BOXES, ACTIONS), min_size=8, max_size=40))
    def change(self, number: int, script: list[tuple[int, str]]) -> None:
        """Make a change and wait for the other members, which do what `script` says meanwhile."""
        box = self.boxes[number]
        if not box.lets_through(self.now):
            self.all_is_well(number)
        if box.applied != self.head or not box.lets_through(self.now):
            return
        self.head += 1
        box.applied = box.waits_for = self.head
        box.sent = None
        for who, action in script:
            self.now += 0.3
            for each in {number, who}:
                self.round_trip(each, "beat" if each == number else action)
            self.fence_the_quiet(number)
            self.round_trip(number, "read")
            self.no_client_passes_without_an_answered_change()
            if not box.waits_for:
                break
        box.waits_for = 0

    @rule(writer=BOXES, late=BOXES)
    def a_change_is_made_without_one(self, writer: int, late: int) -> None:
        """Let a member be silent for so long that a change is answered without it."""
        third = next(number for number in self.boxes if number not in (writer, late))
        for number in (writer, third):
            self.all_is_well(number)
        self.change(writer, [(third, "follow"), (third, "beat")] * 12)

    @rule(number=BOXES, action=ACTIONS)
    def round_trip(self, number: int, action: str) -> None:
        """Do something of which the database's answer comes at once."""
        box = self.boxes[number]
        if action == "follow":
            self.follow(number)
            self.acknowledge(number)
        elif action in ("beat", "read") or not box.membership.has_joined:
            box.sent = self.made(box, action)
            self.arrive(number)
            self.answer(number)

    @invariant()
    def no_client_passes_without_an_answered_change(self) -> None:
        answered = max(box.answered for box in self.boxes.values())
        for box in self.boxes.values():
            assert box.applied >= answered or not box.lets_through(self.now), (
                f"{box.number} has {box.applied} in force, and {answered} was answered"
            )


TestSites = Sites.TestCase
TestSites.settings = settings(max_examples=200, stateful_step_count=25)


def test_silence_is_longer_than_a_lease_by_any_clock() -> None:
    """The clocks of the boxes above run as differently as the margin allows, and more than real
    ones do (a crystal's error is below 0.02 %).
    """
    rates = [Box(number).rate for number in (ME, OTHER, THIRD)]
    assert math.isclose(max(rates) / min(rates), 1.02, rel_tol=1e-3)
    assert (TTL_S + MARGIN_S) * min(rates) / max(rates) > TTL_S

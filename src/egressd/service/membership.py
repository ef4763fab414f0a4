"""The lease of a member of a site, and what it knows of the others' leases.

A member beats in the site's database, and each beat that is taken prolongs its lease: until then,
and no longer, its kernel lets clients through. Another member's lease has certainly run out once no
new beat of it was seen for as long as a lease lasts, and a margin, and it can beat no more: it was
*fenced*, or its row is gone. To beat again it must *join*, which every later change waits for.

Only durations of one's own clock (``CLOCK_BOOTTIME``) are used, never a time of another machine, so
clocks may differ and leap. This module is a state machine without a clock of its own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import msgspec

from egressd.model.site import MemberSeen, SiteReading

TTL_S: Final = 4.0
"""Seconds that a lease lasts from the moment at which its beat was sent."""
BEAT_S: Final = TTL_S / 4
"""Seconds from one beat to the next."""
MARGIN_S: Final = 0.5
"""Seconds beyond `TTL_S` after which another member's lease has run out, however its clock runs."""


NO_ATTEMPTS: Final[Mapping[int, int | None]] = {}


class OthersStanding(msgspec.Struct, frozen=True, kw_only=True):
    """The other members' relation to a revision."""

    pending: tuple[MemberSeen, ...] = ()
    """Members that may let clients through without it."""
    shut: tuple[MemberSeen, ...] = ()
    """Members that have certainly stopped, and have to be in step before they start again."""
    in_step: tuple[MemberSeen, ...] = ()


class _Other(msgspec.Struct):
    """The last sight of another member."""

    seen: MemberSeen
    changed_at: float
    """The time at which its beat was first seen to be another one."""


class _Late(msgspec.Struct):
    """A member's being fenced, as it has seen that itself."""

    head: int
    """The site's revision then: no change that a member was fenced for is later."""
    since: float


class Membership:
    """The knowledge of one member. Times are seconds of its own ``CLOCK_BOOTTIME``."""

    def __init__(self, *, ttl_s: float = TTL_S, margin_s: float = MARGIN_S) -> None:
        self._ttl_s = ttl_s
        self._silence_s = ttl_s + margin_s
        self._others: dict[int, _Other] = {}
        self.is_blind = True
        """True if beats may have been missed since the last reading."""
        self.read_at = -math.inf
        """The time of the last reading."""
        self._needed = math.inf
        """The revision that must be in force here before a beat prolongs the lease."""
        self._late: _Late | None = None
        """Set from the moment at which this member finds itself fenced until it joins again."""
        self.lease_until = -math.inf
        self.has_read = False
        """True once the members are known."""

    @property
    def has_joined(self) -> bool:
        """True if changes of other members wait for this one, as far as is known."""
        return self._needed != math.inf

    @property
    def has_others(self) -> bool:
        """True if the site has other members, at the last reading."""
        return self.others > 0

    @property
    def others(self) -> int:
        """The number of other members of the site, at the last reading."""
        return sum(not other.seen.is_revoked for other in self._others.values())

    def has_lease(self, now: float) -> bool:
        """True while this member's kernel lets clients through."""
        return now < self.lease_until

    # --- What happens. -------------------------------------------------------------------

    def joined(self, head: int) -> None:
        """Note that this member takes part in every change after the revision `head`."""
        self._needed, self._late = head, None

    def beaten(self, reading: SiteReading, *, applied: int, sent_at: float, now: float) -> None:
        """Note the answer to a beat that was sent at `sent_at`, with `applied` in force."""
        self.saw(reading, now)
        if not reading.is_beaten:
            self._needed = math.inf
            if self._late is None and reading.is_fenced:
                self._late = _Late(reading.head, now)
        elif applied >= self._needed:
            self.lease_until = max(self.lease_until, sent_at + self._ttl_s)

    def saw(self, reading: SiteReading, now: float) -> None:
        """Note what the database said of all members, in an answer that came at `now`."""
        others: dict[int, _Other] = {}
        for seen in reading.members:
            if seen.id == reading.me:
                continue
            before = self._others.get(seen.id)
            is_same = before is not None and before.seen.n == seen.n and not self.is_blind
            changed_at = before.changed_at if before is not None and is_same else now
            others[seen.id] = _Other(seen, changed_at)
        self._others = others
        self.is_blind = False
        self.has_read = True
        self.read_at = now

    def lost_sight(self) -> None:
        """Note that the database could not be asked: for as long as a lease lasts from the next
        reading on, no member counts as stopped.
        """
        self.is_blind = True

    def heard(self, *, asked_at: float, now: float, is_equal: bool) -> None:
        """Note that every other member has said that it is blind, each in answer to a question that
        was sent at `asked_at` or later; `is_equal` is true if all have this member's state.

        So none counts this member as stopped before a lease from `asked_at` on has run out.
        """
        if self.is_blind and (self.has_lease(now) or is_equal):
            self.lease_until = max(self.lease_until, asked_at + self._ttl_s)

    def left_alone(self, now: float) -> None:
        """Prolong the lease at the operator's risk, since no other member answers."""
        if self.is_blind:
            self.lease_until = max(self.lease_until, now + self._ttl_s)

    # --- Conclusions. --------------------------------------------------------------------

    def may_join(self, applied: int, now: float) -> bool:
        """True if this member, with `applied` in force, may take part in changes again.

        The one that it was fenced for waits for it until it has that in force, or is seen to have
        stopped: to beat again before would have the caller wait for ever.
        """
        late = self._late
        return late is None or applied >= late.head or now >= late.since + 2 * self._silence_s

    def quiet(self, now: float) -> list[tuple[int, int]]:
        """Return the members that are to be fenced since their leases have run out, each with its
        last beat.
        """
        if self.is_blind:
            return []
        return [
            (other.seen.id, other.seen.n)
            for other in self._others.values()
            if other.seen.n is not None and not other.seen.is_fenced and self._is_over(other, now)
        ]

    def is_silent(self, member: int, now: float) -> bool:
        """True if no new beat of another member was seen for as long as a lease lasts."""
        other = self._others.get(member)
        return other is None or other.seen.n is None or self._is_over(other, now)

    def silent_without_gate(self, now: float) -> list[MemberSeen]:
        """Return the members that do not beat and whose kernels let clients through all the
        same.
        """
        return [
            other.seen
            for other in self._others.values()
            if other.seen.is_ungated and not other.seen.is_revoked and self._is_over(other, now)
        ]

    def standing(
        self, revision: int, now: float, attempts: Mapping[int, int | None] = NO_ATTEMPTS
    ) -> OthersStanding:
        """Return which members have `revision` in force, or let no client through.

        A member that was in the middle of a change, its number in `attempts`, and still is, may
        have that in force instead.
        """
        pending, shut, in_step = [], [], []
        for other in self._others.values():
            seen = other.seen
            attempt = attempts.get(seen.id)
            is_settled = attempt is None or seen.attempt != attempt
            if seen.n is not None and seen.applied >= revision and is_settled:
                in_step.append(seen)
            elif self._is_shut(other, now):
                # One that never started has nothing in force, and a removed one is none any more.
                if seen.version and not seen.is_revoked:
                    shut.append(seen)
            else:
                pending.append(seen)
        return OthersStanding(pending=tuple(pending), shut=tuple(shut), in_step=tuple(in_step))

    def _is_shut(self, other: _Other, now: float) -> bool:
        seen = other.seen
        if seen.is_ungated:
            return False
        if not seen.version and seen.n is None:
            return True
        cannot_beat = seen.n is None or seen.is_fenced
        return cannot_beat and self._is_over(other, now)

    def _is_over(self, other: _Other, now: float) -> bool:
        return now >= other.changed_at + self._silence_s

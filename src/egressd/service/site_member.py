"""This box among the other members of its site: it beats, follows their changes, and waits.

The ledger asks it for the lease before each change, and after one for the other members: the caller
gets its answer once each of them has the change in force or lets no client through.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

import msgspec
import structlog

from egressd.model.errors import EgressdError, Failed, Unconfirmed
from egressd.model.site import MemberSeen, MemberState, SiteReading, StatePoint
from egressd.model.wording import Sentence, say
from egressd.service.membership import BEAT_S, MARGIN_S, TTL_S, Membership, OthersStanding
from egressd.service.peer_lease import PeerLease, Reason, StateHolder
from egressd.service.ports import DurableFlag, MemberLink
from egressd.service.shared_call import SharedCall

log = structlog.get_logger()

ACKNOWLEDGE_S: Final = 10.0
"""Seconds that a member which beats has for a change, before it is fenced."""
_LIMIT_S: Final = ACKNOWLEDGE_S + TTL_S + MARGIN_S + 2
"""Seconds after which it cannot be said what the other members do."""
_LOOK_S: Final = 0.25
"""Seconds between looks for acknowledgements, if no hint comes."""
_AGAIN_S: Final = 1.0
"""Seconds after a failure, before the next attempt."""
_NEAR: Final = 100
"""Changes that a member which joins may still have to follow: others wait for it meanwhile."""
_PRUNE_S: Final = 600.0
"""Seconds between two looks for entries of the log that no member needs."""


_WITHOUT_DATABASE: Final[dict[Reason, str]] = {
    "blind": "site-peer-blind",
    "silent": "site-peer-silent",
}
"""The reason for which the lease is prolonged without the database -> a sentence's code."""


_ATTEMPTS: Final = 1 << 62
"""The bound of a change's number, which is random."""


class Follower(StateHolder, Protocol):
    """The ledger, as far as the membership drives it. Methods raise Failed."""

    async def follow(self, revision: int) -> None:
        """Put the site's changes in force, unless the state is at `revision` already."""
        ...

    async def reread(self) -> None:
        """Read the site's whole state, and put it in force."""
        ...

    async def resync(self) -> None:
        """Put the whole plan in force."""
        ...


class SiteMember:
    """One member of a site. `run` must run for it to have a lease.

    `point` returns the site's state that was read or written last; None if none was since the
    start. `role` returns this box's role in its pair; empty if it is in none. `peer` prolongs the
    lease of the same `membership` while a pair is without the database.
    """

    def __init__(
        self,
        link: MemberLink,
        *,
        clock: Callable[[], float],
        renew: Callable[[int], Awaitable[None]],
        role: Callable[[], str] = lambda: "",
        mark: DurableFlag,
        point: Callable[[], StatePoint | None],
        membership: Membership | None = None,
        peer: PeerLease | None = None,
    ) -> None:
        self._link = link
        self._clock = clock
        self._renew = renew
        self._role = role
        self._mark = mark
        self._membership = membership or Membership()
        self._peer = peer
        self._point = point
        self._applied: StatePoint | None = None
        """The site's state that is in force here; None before the site's database was read."""
        self._blocked: tuple[str, ...] = ()
        self._attempt: int | None = None
        """The number of a change that may be in force here and is not stored."""
        self._head = 0
        self._is_gated = mark.is_set()
        """True if the kernel is to let clients through by a lease alone."""
        self._is_gate_settled = False
        """True once netd and the other members know whether it is gated."""
        self._has_had_lease = False
        self._heard = asyncio.Event()
        """Set, and replaced, at each hint."""
        self._beat_now = asyncio.Event()
        self._follow_now = asyncio.Event()
        self._must_look = False
        """True if the log is to be read whatever its head is."""
        self._acknowledge_now = asyncio.Event()
        self._reads = SharedCall(self._read)
        self._members: tuple[MemberSeen, ...] = ()
        self._me = 0
        self._is_outdated = False
        self._fault = self._follow_fault = ""

    # --- For the ledger. -----------------------------------------------------------------

    @property
    def is_leased(self) -> bool:
        """True if the plan is to be one that needs a lease."""
        return self._is_gated

    @property
    def has_lease(self) -> bool:
        """True if clients may be let through, as far as the membership decides."""
        return not self._is_gated or self._membership.has_lease(self._clock())

    def check(self) -> None:
        """Raise Failed if no change may be made: this box may not know the site's state."""
        action = "change the configuration"
        if not self.has_lease or (self._membership.has_others and not self._is_gated):
            raise Failed(action, f"this box has no lease in its site: {self._why}")
        if self._is_outdated:
            raise Failed(action, str(say("site-outdated")))
        if silent := self._membership.silent_without_gate(self._clock()):
            names = ", ".join(seen.name for seen in silent)
            raise Failed(
                action,
                f"{names} lets clients through and is silent: start its service, or switch it off"
                " and remove it",
            )

    async def announce(self) -> None:
        """Tell the other members that a change is made here. Raises Failed.

        Without this, a member on which the same change would change nothing answers it although
        this one, which did not store it and died, has its opposite in force for the rest of its
        lease.
        """
        self._attempt = attempt = secrets.randbelow(_ATTEMPTS)
        if self._membership.has_others:
            await self._link.announce(attempt)

    def taken_back(self) -> None:
        """Note that the announced change is not in force here."""
        self._attempt = None
        self._acknowledge_now.set()

    def applied(self, revision: int, blocked: tuple[str, ...] = ()) -> None:
        """Note that `revision` is stored and in force here, but for the targets `blocked`."""
        self._attempt = None
        point = self._point()
        self._applied = point if point is not None and point.revision == revision else None
        self._blocked = blocked
        self._acknowledge_now.set()

    async def everywhere(self, revision: int, *, is_new: bool) -> tuple[Sentence, ...]:
        """Return once every other member has `revision` in force or lets no client through, with
        sentences about the members that were shut out and the targets that are blocked.

        Raises Unconfirmed if that cannot be found out; or Failed, once there is no lease, if not
        `is_new`: then nothing was stored.
        """
        if not is_new and not self._is_gated:
            return ()  # without this member's word no other one can have changed anything
        began = self._clock()
        attempts: dict[int, int | None] | None = {} if is_new else None
        while True:
            heard = self._heard
            fault = "members do not answer, and cannot be shut out"
            try:
                reading = await self._reads.get()
                if not reading.is_in_log:
                    raise Unconfirmed(
                        "wait for the other members", "the database does not have the change now"
                    )
                if attempts is None:
                    attempts = {seen.id: seen.attempt for seen in reading.members}
                standing = self._membership.standing(revision, self._clock(), attempts)
                if not standing.pending:
                    return _notes(standing)
                await self._fence(revision, is_late=self._clock() - began >= ACKNOWLEDGE_S)
            except Failed as error:
                fault = str(error)
                self._membership.lost_sight()
                if not is_new:
                    raise  # nothing was stored
            if not is_new:
                self.check()
            if self._clock() - began > _LIMIT_S:
                if not is_new:
                    raise Failed("wait for the other members", "one is in the middle of a change")
                raise Unconfirmed("wait for the other members", fault)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await heard.wait()

    async def _fence(self, revision: int, *, is_late: bool) -> None:
        await self._fence_quiet()
        if is_late:
            for seen in self._membership.standing(revision, self._clock()).pending:
                if seen.n is not None and not seen.is_fenced:
                    log.warning("a member is late, and shut out", member=seen.name)
                    await self._link.fence_late(seen.id, revision)

    async def _fence_quiet(self) -> None:
        for member, n in self._membership.quiet(self._clock()):
            log.warning("a member is silent, and shut out", member=self._name(member))
            await self._link.fence_quiet(member, n)

    def _name(self, member: int) -> str:
        return next((seen.name for seen in self._members if seen.id == member), "")

    # --- For the status. -----------------------------------------------------------------

    def problems(self) -> tuple[Sentence, ...]:
        """Return sentences about this member and the others, for the operator."""
        if not self.has_lease:
            return (say("site-without-lease", reason=self._why),)
        now = self._clock()
        standing = self._membership.standing(self._revision, now)
        shut = [say("site-member-away", name=seen.name) for seen in standing.shut]
        if self._peer is not None and self._peer.reason is not None:
            return (say(_WITHOUT_DATABASE[self._peer.reason]), *shut)
        if self._is_outdated:
            return (say("site-outdated"), *shut)
        return tuple(shut)

    @property
    def _why(self) -> str:
        """The reason why there is no lease."""
        return self._fault or self._follow_fault or "it is not in step yet"

    @property
    def _revision(self) -> int:
        """The revision of the site's state that is in force here; -1 if none is."""
        return -1 if self._applied is None else self._applied.revision

    @property
    def members(self) -> tuple[MemberSeen, ...]:
        """All members that are not removed, this one included, at the last reading."""
        return tuple(seen for seen in self._members if not seen.is_revoked)

    def states(self) -> list[MemberState]:
        """Return the states of `members`. Without the database they are those of the last reading,
        and none beats.
        """
        head = max(self._head, self._revision)
        reading = SiteReading(me=self._me, head=head, members=self._members)
        now, is_away = self._clock(), bool(self._fault)

        def is_beating(seen: MemberSeen) -> bool:
            if is_away or seen.id == self._me:
                return not is_away
            return not self._membership.is_silent(seen.id, now)

        def up_to_date(seen: MemberSeen) -> MemberSeen:
            # What this member has in force may not have arrived at the database.
            applied = max(seen.applied, self._revision) if seen.id == self._me else seen.applied
            return msgspec.structs.replace(seen, applied=applied)

        return [
            MemberState.of(up_to_date(seen), reading, is_beating=is_beating(seen))
            for seen in self.members
        ]

    @property
    def me(self) -> int:
        """This member's id; 0 before the first reading."""
        return self._me

    @property
    def head(self) -> int:
        """The revision of the site's state, at the last reading."""
        return self._head

    # --- Its own work. -------------------------------------------------------------------

    async def run(self, ledger: Follower) -> None:
        """Beat and follow until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._beat_forever(ledger))
                tasks.create_task(self._listen_forever())
                tasks.create_task(self._follow_forever(ledger))
                tasks.create_task(self._acknowledge_forever())
                tasks.create_task(self._fence_forever())
                tasks.create_task(self._prune_forever())
                if self._peer is not None:
                    tasks.create_task(self._peer.run(ledger))
        finally:
            await self._link.close()

    async def _beat_forever(self, ledger: Follower) -> None:
        while True:
            began = self._clock()
            self._beat_now.clear()
            try:
                await self._beat(ledger)
                self._fault = ""
            except EgressdError as error:
                self._membership.lost_sight()
                if self._fault != str(error):
                    self._fault = str(error)
                    log.warning("this box cannot beat in its site", error=self._fault)
            self._note_lease()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0.0, BEAT_S - (self._clock() - began))):
                    await self._beat_now.wait()

    async def _beat(self, ledger: Follower) -> None:
        sent_at, applied, blocked = self._clock(), self._applied, self._blocked
        if applied is None:
            # What the replica has may be another configuration than the site's.
            await self._reads.get()
            self._keep_gate()
            self._follow_now.set()
            return
        reading = await self._link.beat(applied, self._role(), blocked)
        self._note(reading)
        self._membership.beaten(
            reading, applied=applied.revision, sent_at=sent_at, now=self._clock()
        )
        self._keep_gate()
        if not reading.is_in_log:
            self._must_look = True
            self._follow_now.set()
        elif not self._membership.has_joined:
            await self._join(ledger)
        elif self._membership.has_lease(self._clock()):
            with suppress(EgressdError):  # netd is away, and its kernel counts on
                await self._renew(int(self._membership.lease_until * 1000))

    async def _join(self, ledger: Follower) -> None:
        """Take part in all later changes, once the state is nearly the site's."""
        applied = self._applied
        if applied is None or not ledger.is_in_force or self._head - applied.revision > _NEAR:
            self._follow_now.set()
            return
        if not self._membership.may_join(applied.revision, self._clock()):
            return
        self._membership.joined(await self._link.join(applied, self._role(), self._attempt))
        self._follow_now.set()
        self._beat_now.set()

    def _keep_gate(self) -> None:
        """Have the kernel's gate closed while there are other members, and opened for the only
        one. The beats wait for neither.
        """
        if self._membership.has_others and not self._is_gated:
            self._mark.put(True)
            self._is_gated, self._is_gate_settled = True, False
        if not self._is_gate_settled or self._must_open_gate:
            self._follow_now.set()

    @property
    def _must_open_gate(self) -> bool:
        """True if this is the only member, and its gate is not known to be open."""
        is_only = self._membership.has_read and not self._membership.has_others
        return is_only and (self._is_gated or not self._is_gate_settled)

    def _note_lease(self) -> None:
        if self.has_lease != self._has_had_lease:
            self._has_had_lease = self.has_lease
            if self.has_lease:
                log.info("this box has a lease in its site")
            else:
                log.warning("this box has no lease in its site", reason=self._fault)

    async def _listen_forever(self) -> None:
        while True:
            with suppress(EgressdError):  # the beats report it
                async for revision in self._link.hints():
                    if revision > self._revision:
                        self._must_look = True
                        self._follow_now.set()
                    elif not revision:
                        self._wake_waiting()
            await asyncio.sleep(_AGAIN_S)

    async def _follow_forever(self, ledger: Follower) -> None:
        while True:
            await self._follow_now.wait()
            self._follow_now.clear()
            try:
                if self._is_gated and not self._is_gate_settled:
                    await self._close_gate(ledger)
                await self._follow(ledger)
                if self._must_open_gate:
                    await self._open_gate(ledger)
                self._follow_fault = ""
            except EgressdError as error:
                if self._follow_fault != str(error):
                    self._follow_fault = str(error)
                    log.warning("this box does not follow its site", error=self._follow_fault)
                await asyncio.sleep(_AGAIN_S)
                self._follow_now.set()

    async def _follow(self, ledger: Follower) -> None:
        if self._point() is None:
            await ledger.reread()
            return
        must_look, self._must_look = self._must_look, False
        await ledger.follow(max(self._head, self._revision + 1) if must_look else self._head)

    async def _close_gate(self, ledger: Follower) -> None:
        """Put the closed gate in force. The other members know of it afterwards."""
        await ledger.resync()
        await self._link.close_gate()
        self._is_gate_settled = True

    async def _open_gate(self, ledger: Follower) -> None:
        """Open the gate. The other members, if there are any later, know of it before."""
        if not await self._link.open_gate() or self._membership.has_others:
            # There is another member by now. If its row says open, closing the gate says no again.
            self._is_gate_settled = False
            self._beat_now.set()
            return
        if self._is_gated:
            self._mark.put(False)
        self._is_gated, self._is_gate_settled = False, False
        await ledger.resync()
        if not self._is_gated:
            self._is_gate_settled = True

    async def _acknowledge_forever(self) -> None:
        while True:
            await self._acknowledge_now.wait()
            self._acknowledge_now.clear()
            if self._applied is not None and self._membership.has_others:
                try:
                    await self._link.acknowledge(self._applied, self._blocked, self._attempt)
                except EgressdError:
                    await asyncio.sleep(_AGAIN_S)
                    self._acknowledge_now.set()
            if not self._membership.has_lease(self._clock()):
                self._beat_now.set()

    async def _fence_forever(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            with suppress(EgressdError):  # the next time
                await self._fence_quiet()

    async def _prune_forever(self) -> None:
        while True:
            await asyncio.sleep(_PRUNE_S)
            with suppress(EgressdError):  # the next time
                await self._link.prune()

    async def _read(self) -> SiteReading:
        reading = await self._link.read(self._point())
        self._note(reading)
        self._membership.saw(reading, self._clock())
        return reading

    def _note(self, reading: SiteReading) -> None:
        self._me, self._members = reading.me, reading.members
        self._is_outdated = reading.is_outdated
        self._head = max(self._head, reading.head)
        if reading.head > self._revision:
            self._follow_now.set()

    def _wake_waiting(self) -> None:
        heard, self._heard = self._heard, asyncio.Event()
        heard.set()


def _notes(standing: OthersStanding) -> tuple[Sentence, ...]:
    shut = [say("site-member-shut", name=seen.name) for seen in standing.shut]
    blocked = [
        say("site-blocked-there", name=seen.name, targets=seen.blocked)
        for seen in standing.in_step
        if seen.blocked
    ]
    return (*shut, *blocked)

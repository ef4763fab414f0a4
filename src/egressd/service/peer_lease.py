"""The lease of a box of a pair while the site's database cannot be reached.

As long as neither box reaches the database, no change is answered. So each box asks the other one
all the time, on both links between them, whether it reaches the database. What prolongs a lease is

- the other box's word that it does not, if this box has a lease, or the same state as that one; and
- the other box's silence on both links, if the operator wants that (``pair.alone``).

The word is enough, since a change is answered only after a reading of the database that shows the
other box in step or shut out, and a box that was blind counts no other as shut out before that one
was silent for as long as a lease lasts, from the next reading on (`Membership.lost_sight`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Literal, Protocol

import msgspec
import structlog

from egressd.model.desired import DesiredState
from egressd.model.digest import digest
from egressd.model.errors import EgressdError
from egressd.service.membership import BEAT_S, Membership
from egressd.service.ports import DurableFlag

log = structlog.get_logger()

ASK_S: Final = 0.4
"""Seconds from one question to the next."""
SILENT_S: Final = 5 * ASK_S
"""Seconds after which a box that has answered none of the questions on two links is silent."""
SIGHT_S: Final = 2 * BEAT_S
"""Seconds since the database's last answer after which it counts as out of reach."""
START_S: Final = 10.0
"""Seconds of silence after which a box without a lease goes on alone: another one that was switched
on at the same moment has time to answer."""


Reason = Literal["blind", "silent"]
"""The other box, as this one finds it."""


class PeerWord(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a box to the other one of its pair."""

    is_blind: bool
    """True if it cannot reach the site's database, as far as it knows."""
    is_pair: bool
    """True if the site has no other members than these two boxes."""
    state: bytes = b""
    """The digest of the state in force there, if it is blind; empty if that is not certain."""


class PeerLinks(Protocol):
    """The links between the two boxes of a pair."""

    def ask(self) -> None:
        """Send a question on each link. A lost one is not sent again."""
        ...

    async def answer(
        self, speak: Callable[[], PeerWord], hear: Callable[[PeerWord, float], None]
    ) -> None:
        """Answer the other box's questions by `speak`, and call `hear` with each of its words and
        the time at which that was asked for; until cancelled.
        """
        ...


class StateHolder(Protocol):
    """The ledger, as far as its state is compared with the other box's."""

    @property
    def state(self) -> DesiredState:
        """The current state. Raises Failed before it is read."""
        ...

    @property
    def is_in_force(self) -> bool:
        """True if netd has the current state."""
        ...


class PeerLease:
    """Prolongs the lease of `membership` without the database. `run` must run for that."""

    def __init__(
        self,
        links: PeerLinks,
        membership: Membership,
        *,
        clock: Callable[[], float],
        renew: Callable[[int], Awaitable[None]],
        goes_on_alone: bool,
        is_pair: DurableFlag,
        is_behind: DurableFlag,
    ) -> None:
        """`renew` has the kernel let clients through until a time in milliseconds of `clock`.
        `is_pair` is set while the site has no third member, and `is_behind` while the other box may
        have made changes without this one.
        """
        self._links = links
        self._membership = membership
        self._clock = clock
        self._renew = renew
        self._goes_on_alone = goes_on_alone
        self._pair_flag, self._behind_flag = is_pair, is_behind
        self._is_pair = is_pair.is_set()
        self._word: PeerWord | None = None
        """The newest word; it was asked for at `_asked_at`."""
        self._asked_at = self._heard_at = clock()
        self._digested: tuple[DesiredState, bytes] | None = None
        """A state and its digest."""
        self.reason: Reason | None = None
        """The reason for which clients are let through without the database; None if they are not.
        """

    async def run(self, ledger: StateHolder) -> None:
        """Ask, answer and prolong until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._links.answer(lambda: self._speak(ledger), self._hear))
            tasks.create_task(self._ask_forever(ledger))

    def _speak(self, ledger: StateHolder) -> PeerWord:
        is_blind = self._membership.is_blind
        state = self._known_digest(ledger) if is_blind else b""
        return PeerWord(is_blind=is_blind, is_pair=self._is_pair, state=state)

    def _hear(self, word: PeerWord, asked_at: float) -> None:
        if asked_at >= self._asked_at:
            self._word, self._asked_at = word, asked_at
        self._heard_at = self._clock()

    async def _ask_forever(self, ledger: StateHolder) -> None:
        self._heard_at = self._clock()
        while True:
            self._links.ask()
            await asyncio.sleep(ASK_S)
            with suppress(EgressdError):  # netd or the disk fails: the next time
                await self.look(ledger)

    async def look(self, ledger: StateHolder) -> None:
        """Prolong the lease if the database is out of reach. Raises EgressdError."""
        membership, now = self._membership, self._clock()
        if now - membership.read_at > SIGHT_S:
            membership.lost_sight()
        if not membership.is_blind:
            self._note(None)
            self._is_pair = membership.others == 1
            self._pair_flag.put(self._is_pair)
            if membership.has_lease(now):
                self._behind_flag.put(False)
            return
        if ledger.is_in_force and (self._digested is None or self._digested[0] is not ledger.state):
            state = ledger.state
            self._digested = state, await asyncio.to_thread(digest, state)
        self._note(self._prolonged(ledger, now) if self._is_pair else None)
        if self.reason:
            await self._renew(int(membership.lease_until * 1000))

    def _prolonged(self, ledger: StateHolder, now: float) -> Reason | None:
        """Prolong the lease if that is safe, or wanted. Return the reason; None without a lease."""
        membership, word, silence_s = self._membership, self._word, now - self._heard_at
        if word is not None and silence_s < SILENT_S:
            if not word.is_blind:
                if not membership.has_lease(now):
                    self._behind_flag.put(True)
                return None
            if not word.is_pair:
                return None
            is_equal = bool(word.state) and word.state == self._known_digest(ledger)
            membership.heard(asked_at=self._asked_at, now=now, is_equal=is_equal)
            return "blind" if membership.has_lease(now) else None
        if not self._goes_on_alone or silence_s < SILENT_S:
            return None
        may_begin = silence_s >= START_S and ledger.is_in_force and not self._behind_flag.is_set()
        if membership.has_lease(now) or may_begin:
            membership.left_alone(now)
            return "silent"
        return None

    def _known_digest(self, ledger: StateHolder) -> bytes:
        """Return the digest of the state in force; empty if it is not known."""
        if self._digested is None or not ledger.is_in_force:
            return b""
        state, known = self._digested
        return known if state is ledger.state else b""

    def _note(self, reason: Reason | None) -> None:
        if reason and reason != self.reason:
            log.warning("clients are let through without the site's database", peer=reason)
        self.reason = reason

"""Bounds of the number of connections, by their source, and the choice of the ones that end to make
room for another.

A connection belongs to a share: root's, that of this machine's users, that of addresses that have
lately shown a valid token or session, or that of strangers. A share may take what the ones before
it do not use, and never what is kept for them: no number of strangers shuts anybody else out.
Within a share an address has its bound, and among strangers a network too (/24, /64), since a host
of a LAN may take any address there.

At a bound a connection ends that waits for its client: one without a request first, then one whose
request does not arrive, then one whose answer is not taken; each of the network and the address
with the most. None ends while the device works for it. Where there is none to end, the new one is
refused.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from enum import IntEnum
from heapq import nsmallest
from operator import itemgetter
from typing import Final, NamedTuple

import structlog

from egressd.model.source import Source, local_user
from egressd.model.wording import Sentence, say

log = structlog.get_logger()

KNOWN_S: Final = 600.0
"""Seconds for which an address is known by a token or session that it has shown."""
FRESH_S: Final = 2.0
"""Seconds for which a connection has better reasons to wait than one that has waited longer."""
_AT_ONCE: Final = 16
"""The part of a bound's connections, one in so many, that make room together."""
_REASONS: Final = 3
"""Share, freshness and stage: what comes first in a connection's place among those that end."""
_KNOWN_MAX: Final = 1024
_TOLD_S: Final = 60.0
"""Seconds between two lines of the log about one bound and place, and for which it is a problem."""
_TOLD_MAX: Final = 256

ROOT: Final = local_user(0)


class CallerShare(IntEnum):
    """The share that a connection belongs to. Each gives way to those after it."""

    STRANGERS = 0
    KNOWN = 1
    LOCAL = 2
    ROOT = 3


class Stage(IntEnum):
    """A connection's wait, in the order in which connections end to make room."""

    SILENT = 0
    """It waits for a request."""
    SENDING = 1
    """It waits for the rest of a request."""
    TAKING = 2
    """It waits for its client to take the answer so far."""
    WORKING = 3
    """It waits for the device's answer."""


class CallLimits(NamedTuple):
    """Numbers of connections. One in its TLS handshake takes 52 KiB."""

    address: int = 256
    network: int = 512
    """Connections of strangers in one network."""
    shares: tuple[int, int, int, int] = (1280, 1792, 1984, 2048)
    """Connections of each share and those that give way to it."""


LIMITS: Final = CallLimits()


class HeldConnection:
    """A connection that counts."""

    __slots__ = ("end", "share", "since", "source", "stage")

    def __init__(
        self, source: Source, share: CallerShare, end: Callable[[], object], now: float
    ) -> None:
        """`end` ends the connection at once, and may be replaced."""
        self.source = source
        self.share = share
        self.end = end
        self.stage = Stage.SILENT
        self.since = now
        """The time at which it entered its stage."""


class _Bound(NamedTuple):
    kind: str
    """``address``, ``network`` or the name of a share."""
    place: str
    limit: int


class CallBounds:
    """The connections of a server. Times are seconds of a clock that never goes back."""

    def __init__(
        self, limits: CallLimits = LIMITS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        kinds = ("address", "network", *(share.name.lower() for share in CallerShare))
        self.refused = Counter(dict.fromkeys(kinds, 0))
        """Connections that were refused, by kind of bound."""
        self.ended = Counter(dict.fromkeys(kinds, 0))
        """Connections that made room for another, by kind of bound."""
        self._limits = limits
        self._clock = clock
        self._held: set[HeldConnection] = set()
        self._by_address: dict[str, set[HeldConnection]] = {}
        self._by_network: dict[str, set[HeldConnection]] = {}
        """Strangers'."""
        self._counts = [0] * len(CallerShare)
        self._known_until: dict[str, float] = {}
        self._told: dict[_Bound, float] = {}

    def admit(self, source: Source, end: Callable[[], object]) -> HeldConnection | None:
        """Count a connection that has come, and let another end where that is needed. None when it
        cannot be held; it is to be closed then.
        """
        now = self._clock()
        share = self._share_of(source, now)
        for bound, of_it in self._reached(source, share):
            self._tell(bound, of_it, now)
            victims = self._victims(of_it, max(bound.limit // _AT_ONCE, 1), now)
            if not victims:
                self.refused[bound.kind] += 1
                return None
            self.ended[bound.kind] += len(victims)
            for victim in victims:
                self.release(victim)
                victim.end()
        held = HeldConnection(source, share, end, now)
        self._put(held)
        return held

    def release(self, held: HeldConnection) -> None:
        """Count a connection no more; may be called again."""
        if held in self._held:
            self._take_out(held)

    def enter(self, held: HeldConnection, stage: Stage) -> None:
        """Note what a connection waits for."""
        if stage is not held.stage:
            held.stage = stage
            held.since = self._clock()

    def vouch(self, held: HeldConnection) -> None:
        """Note that a connection has shown a valid token or session: its address is known now."""
        address = held.source.address
        if held.source.is_here:
            return
        # Taken out and put in again, so that the first key is the one that was quiet longest.
        self._known_until.pop(address, None)
        self._known_until[address] = self._clock() + KNOWN_S
        if len(self._known_until) > _KNOWN_MAX:
            del self._known_until[next(iter(self._known_until))]
        if held.share is CallerShare.STRANGERS:
            for other in list(self._by_address.get(address, ())):
                self._take_out(other)
                other.share = CallerShare.KNOWN
                self._put(other)

    def count(self, share: CallerShare) -> int:
        """Connections of a share."""
        return self._counts[share]

    def problems(self) -> tuple[Sentence, ...]:
        """The bounds that were reached within the last minute, in words."""
        now = self._clock()
        return tuple(_sentence(bound) for bound, at in self._told.items() if now < at + _TOLD_S)

    # --- Whose a connection is. ---------------------------------------------------------------

    def _share_of(self, source: Source, now: float) -> CallerShare:
        if source == ROOT:
            return CallerShare.ROOT
        if source.is_here:
            return CallerShare.LOCAL
        is_known = self._known_until.get(source.address, 0.0) > now
        return CallerShare.KNOWN if is_known else CallerShare.STRANGERS

    def _put(self, held: HeldConnection) -> None:
        self._held.add(held)
        self._counts[held.share] += 1
        self._by_address.setdefault(held.source.address, set()).add(held)
        if held.share is CallerShare.STRANGERS:
            self._by_network.setdefault(held.source.network, set()).add(held)

    def _take_out(self, held: HeldConnection) -> None:
        self._held.discard(held)
        self._counts[held.share] -= 1
        _discard(self._by_address, held.source.address, held)
        if held.share is CallerShare.STRANGERS:
            _discard(self._by_network, held.source.network, held)

    # --- Making room. -------------------------------------------------------------------------

    def _reached(
        self, source: Source, share: CallerShare
    ) -> Iterator[tuple[_Bound, Collection[HeldConnection]]]:
        """The bounds that one more connection would pass, and the connections that they are of.
        Room is to be made for each before the next is asked for.
        """
        limits = self._limits
        of_address = self._by_address.get(source.address, ())
        if share is not CallerShare.ROOT and len(of_address) >= limits.address:
            yield _Bound("address", source.address, limits.address), of_address
        of_network = self._by_network.get(source.network, ())
        if share is CallerShare.STRANGERS and len(of_network) >= limits.network:
            yield _Bound("network", source.network, limits.network), of_network
        for at_most in CallerShare:
            if at_most >= share and sum(self._counts[: at_most + 1]) >= limits.shares[at_most]:
                giving_way = [held for held in self._held if held.share <= at_most]
                yield _Bound(at_most.name.lower(), "", limits.shares[at_most]), giving_way

    def _victims(
        self, connections: Collection[HeldConnection], number: int, now: float
    ) -> list[HeldConnection]:
        """Return the connections to end: at most `number`, none with a better reason to wait than
        the first. To examine all of them for each new one would take too long.
        """

        def place(held: HeldConnection) -> tuple[float, ...]:
            return (
                held.share,
                now - held.since < FRESH_S,
                held.stage,
                -len(self._by_network.get(held.source.network, ())),
                -len(self._by_address[held.source.address]),
                held.since,
            )

        waiting = (held for held in connections if held.stage is not Stage.WORKING)
        found = nsmallest(number, ((place(held), held) for held in waiting), key=itemgetter(0))
        return [held for reason, held in found if reason[:_REASONS] == found[0][0][:_REASONS]]

    def _heaviest(self, connections: Collection[HeldConnection]) -> str:
        addresses = {held.source.address for held in connections}
        return max(addresses, key=lambda it: len(self._by_address[it]))

    # --- Telling. -----------------------------------------------------------------------------

    def _tell(self, bound: _Bound, connections: Collection[HeldConnection], now: float) -> None:
        if now < self._told.get(bound, -_TOLD_S) + _TOLD_S:
            return
        heaviest = self._heaviest(connections)
        self._told.pop(bound, None)
        self._told[bound] = now
        if len(self._told) > _TOLD_MAX:
            del self._told[next(iter(self._told))]
        log.warning(
            _sentence(bound), most_from=heaviest, of_these=len(self._by_address.get(heaviest, ()))
        )


def _discard(sets: dict[str, set[HeldConnection]], key: str, held: HeldConnection) -> None:
    found = sets[key]
    found.discard(held)
    if not found:
        del sets[key]


def _sentence(bound: _Bound) -> Sentence:
    place, limit = bound.place, bound.limit
    match bound.kind:
        case "address":
            return say("bound-of-address", address=place, n=limit)
        case "network":
            return say("bound-of-network", network=place, n=limit)
        case "strangers":
            return say("bound-of-strangers", n=limit)
        case _:
            return say("bound-of-device", n=limit)

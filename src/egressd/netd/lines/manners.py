"""The manner in which IPsec is negotiated with each server: the one that worked, or else another
with each attempt. Pure.

Lines that share an IKE_SA share their manner. Several attempts in one manner, made at the same
time, count once.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

from egressd.netd.lines.failure import IkeStage
from egressd.planner.lines.dial import Dial
from egressd.planner.lines.ipsec import Manner
from egressd.planner.lines.proposals import ESP_OFFERS, IKE_OFFERS

_REMEMBERED: Final = 256
"""Number of pairs of addresses that are remembered. A pair changes with each lease of a WAN, and
with the addresses of a server's name.
"""
_PATIENCE: Final = 3
"""Every so many attempts, a server with which one form of ESP has worked gets the other form. The
cause is rather that L2TP does not answer there, or that the path is cut."""

Way = tuple[IPv4Address, IPv4Address, str]


@dataclass
class _Known:
    """The knowledge about the way to one server."""

    ike: int = 0
    esp: int = 0
    is_guess: bool = False
    """True if those offers follow on some without an answer: the server may have been down."""
    has_worked: bool = False
    """True once an association was made in that manner."""
    is_in_udp: bool = False
    """True if the last traffic came by ESP in UDP, False if by plain ESP."""
    has_carried: bool = False
    misses: int = 0
    """Attempts since then in which nothing came by ESP."""

    @property
    def manner(self) -> Manner:
        every = _PATIENCE if self.has_carried else 2
        is_other = self.misses % every == every - 1
        return Manner(self.ike, self.esp, is_in_udp=self.is_in_udp != is_other)


class Manners:
    """The manners that netd has learnt. A later netd learns them from associations that are up."""

    def __init__(self) -> None:
        self._known: dict[Way, _Known] = {}

    def of(self, dial: Dial) -> Manner:
        """Return the manner for the next attempt."""
        return self._of(dial).manner

    def refused(self, dial: Dial, tried: Manner, stage: IkeStage) -> None:
        """Note that the server accepts no proposal of an offer. The first one follows the last."""
        known = self._of(dial)
        if known.manner != tried:
            return
        if stage is IkeStage.IKE:
            known.ike = (known.ike + 1) % len(IKE_OFFERS)
        else:
            known.esp = (known.esp + 1) % len(ESP_OFFERS)

    def unanswered(self, dial: Dial, tried: Manner, stage: IkeStage) -> None:
        """Note that an offer had no answer: some servers are silent if they accept no proposal."""
        known = self._of(dial)
        if not known.has_worked:
            self.refused(dial, tried, stage)
            known.is_guess = (known.ike, known.esp) != (0, 0)

    def is_guess(self, dial: Dial) -> bool:
        """Return True if a server that accepts the current offers may accept the first, too."""
        return self._of(dial).is_guess

    def confirmed(self, dial: Dial) -> None:
        """Note that the server received the first offers while it was up."""
        self._of(dial).is_guess = False

    def unheard(self, dial: Dial, tried: Manner) -> None:
        """Note that no packet came by ESP."""
        known = self._of(dial)
        if known.manner == tried:
            known.misses += 1

    def established(self, dial: Dial, manner: Manner) -> None:
        """Note that an association in that manner exists."""
        known = self._of(dial)
        known.ike, known.esp, known.has_worked = manner.ike, manner.esp, True

    def carried(self, dial: Dial, manner: Manner) -> None:
        """Note that a line is online by an association in that manner."""
        self.established(dial, manner)
        known = self._of(dial)
        known.is_in_udp, known.has_carried, known.misses = manner.is_in_udp, True, 0

    def _of(self, dial: Dial) -> _Known:
        way = way_of(dial)
        # The most recently used entry is the last.
        known = self._known[way] = self._known.pop(way, _Known())
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]
        return known


def way_of(dial: Dial) -> Way:
    """Return a key that is equal for lines that may share an IKE_SA."""
    return dial.local, dial.server, dial.line.secret

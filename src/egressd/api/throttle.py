"""How fast wrong tokens are answered.

A token has 256 random bits, so guessing is hopeless at any speed; what is bounded here is
what a guesser costs the device. A wrong token is answered late once its source has sent a
few, one answer an interval; one that has seconds of answers outstanding is told so at once, and
holds no more connections. A right token is never slowed, so that a script with a stale token
does not lock out its neighbour at the same address.
"""

from __future__ import annotations

from typing import Final

from egressd.service.debts import Debts

FREE: Final = 10
"""Wrong tokens from one source that are answered at once."""
INTERVAL_S: Final = 0.05
"""Seconds between two answers after that."""
DEBT_MAX_S: Final = 5.0
"""A source that has so much outstanding is answered at once, and told to stay away."""

ALL_FREE: Final = 400
ALL_INTERVAL_S: Final = 0.005
"""The same for all sources together: 200 wrong tokens a second."""


class Throttle:
    """What is answered when. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._debts = Debts(each_s=INTERVAL_S, all_s=ALL_INTERVAL_S)

    def may_wait(self, source: str, now: float) -> bool:
        """Whether a wrong token from `source` is answered in its turn: that holds a connection.

        When everybody together sends too many wrong ones, no source that sent one before has a
        turn.
        """
        debt = self._debts.of(source, now)
        if debt > FREE * INTERVAL_S + DEBT_MAX_S:
            return False
        return debt == 0 or self._debts.of_all(now) <= ALL_FREE * ALL_INTERVAL_S

    def wrong(self, source: str, now: float) -> float:
        """Count a wrong token; the seconds after which it is answered."""
        self._debts.charge(source, now)
        return max(0.0, self._debts.of(source, now) - FREE * INTERVAL_S)

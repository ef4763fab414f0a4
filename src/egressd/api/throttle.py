"""The rate at which wrong tokens are answered.

A token has 256 random bits, so guessing is hopeless at any speed. This bounds the load of guesses
on the device. A wrong token is answered late once its address or its network has sent a few: one
answer an interval. A source with seconds of answers outstanding gets a refusal at once, and holds
no more connections. A right token is never slowed, so that a script with a stale token does not
lock out its neighbour at the same address.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from egressd.model.rate_limit import Gcra
from egressd.model.source import Source


class CallRate(NamedTuple):
    """The rate at which the wrong tokens of one account are answered."""

    free: int
    """Wrong tokens that are answered at once."""
    interval_s: float
    """Seconds between two answers after that."""


ADDRESS: Final = CallRate(10, 0.05)
NETWORK: Final = CallRate(40, 0.025)
"""A /24 or /64: a host of a LAN may take any address there."""
ALL: Final = CallRate(400, 0.005)
"""All sources together: 200 wrong tokens a second."""
DEBT_MAX_S: Final = 5.0
"""A source with more than this outstanding gets its answer at once, with ``Retry-After``."""
_ALL: Final = ""


class Throttle:
    """The delay of each answer. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._gcra = Gcra()

    def may_wait(self, source: Source, now: float) -> bool:
        """Return True if a wrong token from `source` may wait for its answer.

        If all sources together send too many wrong tokens, networks that sent one before may not
        wait.
        """
        if self._delay(source, now) > DEBT_MAX_S:
            return False
        of_all = self._gcra.of(_ALL, now)
        return of_all <= ALL.free * ALL.interval_s or not self._gcra.of(source.network, now)

    def wrong(self, source: Source, now: float) -> float:
        """Count a wrong token; the seconds after which it is answered."""
        self._gcra.charge(source.network, NETWORK.interval_s, now)
        if source.address != source.network:
            self._gcra.charge(source.address, ADDRESS.interval_s, now)
        self._gcra.charge(_ALL, ALL.interval_s, now)
        return self._delay(source, now)

    def _delay(self, source: Source, now: float) -> float:
        accounts = ((source.network, NETWORK), (source.address, ADDRESS))
        return max(
            0.0, *(self._gcra.of(it, now) - rate.free * rate.interval_s for it, rate in accounts)
        )

"""How fast wrong tokens may be tried.

A token has 256 random bits, so guessing is hopeless at any speed; what is bounded here is
what a guesser costs the device. A wrong token is answered late once its source has sent a
few, one answer an interval. A right token is never slowed, so that a script with a stale
token does not lock out its neighbour at the same address. Only while a source has seconds of
answers outstanding is it refused unseen: whoever comes from elsewhere is let in meanwhile.

Each source costs one number: the time at which its debt is paid off (the generic cell
rate algorithm, ITU-T I.371).
"""

from __future__ import annotations

from typing import Final

FREE: Final = 10
"""Wrong tokens from one source that are answered at once."""
INTERVAL_S: Final = 0.05
"""Seconds between two answers after that."""
DEBT_MAX_S: Final = 5.0
"""A source that has so much outstanding is refused unseen."""

ALL_FREE: Final = 400
ALL_INTERVAL_S: Final = 0.005
"""The same for all sources together: 200 wrong tokens a second."""

SOURCES_MAX: Final = 4096

_EVERYBODY: Final = ""


class Throttle:
    """The debts of sources. Times are seconds of a monotonic clock."""

    def __init__(self) -> None:
        self._paid_at: dict[str, float] = {}

    def may_try(self, source: str, now: float) -> bool:
        """Whether a token from `source` is looked at.

        When everybody together sends too many wrong ones, sources that sent one are not heard.
        """
        paid_at = self._paid_at.get(source)
        if paid_at is None:
            return True
        if paid_at - now > FREE * INTERVAL_S + DEBT_MAX_S:
            return False
        return paid_at <= now or self._delay(_EVERYBODY, now, ALL_FREE * ALL_INTERVAL_S) == 0

    def wrong(self, source: str, now: float) -> float:
        """Count a wrong token; the seconds after which it is answered."""
        self._charge(_EVERYBODY, now, ALL_INTERVAL_S)
        self._charge(source, now, INTERVAL_S)
        self._forget(now)
        return self._delay(source, now, FREE * INTERVAL_S)

    def _charge(self, source: str, now: float, interval: float) -> None:
        # Taken out and put in again, so that the first key is the one that was quiet longest.
        self._paid_at[source] = max(self._paid_at.pop(source, now), now) + interval

    def _delay(self, source: str, now: float, free: float) -> float:
        return max(0.0, self._paid_at.get(source, now) - now - free)

    def _forget(self, now: float) -> None:
        if len(self._paid_at) > SOURCES_MAX:
            self._paid_at = {key: at for key, at in self._paid_at.items() if at > now}
        while len(self._paid_at) > SOURCES_MAX:
            del self._paid_at[next(iter(self._paid_at))]

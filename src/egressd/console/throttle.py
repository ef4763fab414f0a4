"""How fast passwords and setup codes may be guessed.

A source has a few free guesses, then one more a while; a right one forgives the wrong ones
before it. Every guess is charged before it is looked at, so that a hundred sent at once are
not a hundred looked at. When all sources together guess too much, those that have guessed wrong
already are not heard: whoever comes from elsewhere still gets in.

Kept in memory: a restart forgives, and whoever can restart the service needs no password.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

FREE: Final = 5
"""Guesses that a source has to begin with."""
INTERVAL_S: Final = 60.0
"""Seconds in which it earns another."""
ALL_FREE: Final = 50
ALL_INTERVAL_S: Final = 5.0
"""The same for all sources together."""
SOURCES_MAX: Final = 4096

_EVERYBODY: Final = ""


class Throttle:
    """The debts of sources, as the times at which they are paid off."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds that never go back."""
        self._clock = clock
        self._paid_at: dict[str, float] = {}

    def charge(self, source: str) -> float:
        """Take a guess from `source`: 0.0, or the seconds for which it will not be heard."""
        now = self._clock()
        wait = self._wait(source, now, FREE, INTERVAL_S)
        if wait == 0 and source in self._paid_at:
            wait = self._wait(_EVERYBODY, now, ALL_FREE, ALL_INTERVAL_S)
        if wait == 0:
            self._add(source, now, INTERVAL_S)
            self._add(_EVERYBODY, now, ALL_INTERVAL_S)
        return wait

    def forgive(self, source: str) -> None:
        """The guess was right."""
        self._paid_at.pop(source, None)

    def _wait(self, source: str, now: float, free: int, interval: float) -> float:
        """Seconds until `source` may owe one more guess and be within its free ones."""
        debt = max(0.0, self._paid_at.get(source, now) - now)
        return max(0.0, debt - (free - 1) * interval)

    def _add(self, source: str, now: float, interval: float) -> None:
        self._paid_at[source] = max(self._paid_at.pop(source, now), now) + interval
        if len(self._paid_at) > SOURCES_MAX:
            self._paid_at = {key: at for key, at in self._paid_at.items() if at > now}
        while len(self._paid_at) > SOURCES_MAX:
            oldest = next(key for key in self._paid_at if key != _EVERYBODY)
            del self._paid_at[oldest]

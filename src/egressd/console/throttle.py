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

from egressd.service.debts import Debts

FREE: Final = 5
"""Guesses that a source has to begin with."""
INTERVAL_S: Final = 60.0
"""Seconds in which it earns another."""
ALL_FREE: Final = 50
ALL_INTERVAL_S: Final = 5.0
"""The same for all sources together."""


class Throttle:
    """Who is heard when."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds that never go back."""
        self._clock = clock
        self._debts = Debts(each_s=INTERVAL_S, all_s=ALL_INTERVAL_S)

    def charge(self, source: str) -> float:
        """Take a guess from `source`: 0.0, or the seconds for which it will not be heard."""
        now = self._clock()
        wait = max(0.0, self._debts.of(source, now) - (FREE - 1) * INTERVAL_S)
        if wait == 0 and source in self._debts:
            wait = max(0.0, self._debts.of_all(now) - (ALL_FREE - 1) * ALL_INTERVAL_S)
        if wait == 0:
            self._debts.charge(source, now)
        return wait

    def forgive(self, source: str) -> None:
        """The guess was right."""
        self._debts.forgive(source)

"""How fast passwords and setup codes may be guessed.

A guess is charged to its address, to its network (a /24, or a /64 of IPv6: a host of a LAN may take
any address there), and to the one account that there is to be guessed. Each of them has a few free
guesses; then it waits before the next, twice as long each time. Time forgets guesses, and a right
one forgives its address and counts for none. Every guess is charged before it is looked at, so that
a hundred sent at once are not a hundred looked at.

A browser that somebody has logged in with before is charged on its own (`egressd.console.devices`),
and so is this machine itself: whoever guesses elsewhere does not lock out the operator.

Kept in memory: a restart forgives, and whoever can restart the service needs no password.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import ceil
from typing import Final, NamedTuple

from egressd.model.source import Source

ACCOUNTS_MAX: Final = 4096
"""Accounts remembered; beyond, the one that has been quiet longest is forgiven."""
FORGET_S: Final = 600.0
"""Seconds in which an account that is heard forgets one guess."""
TOLD_S: Final = 60.0
"""Seconds for which it is a problem that guesses were refused."""


class Patience(NamedTuple):
    """How many guesses an account has."""

    free: int
    """To begin with."""
    first_s: float
    """Seconds until it has another one after them."""
    most_s: float
    """The longest that these grow to, twice as long with each guess."""


ADDRESS: Final = Patience(5, 60.0, 3600.0)
NETWORK: Final = Patience(20, 30.0, 900.0)
EVERYBODY: Final = Patience(50, 5.0, 60.0)
"""All strangers together: 1,440 guesses a day at the most."""
DEVICE: Final = Patience(10, 10.0, 600.0)
"""A browser that somebody has logged in with."""
_EVERYBODY: Final = ""


class _Tally:
    """The guesses of one account."""

    __slots__ = ("guesses", "heard_at")

    def __init__(self, now: float) -> None:
        self.guesses = 0.0
        self.heard_at = now
        """When the next guess is heard."""

    def add(self, patience: Patience, now: float) -> None:
        """Count a guess that is heard now: none is forgotten while the account had to wait."""
        self.guesses = max(0.0, self.guesses - (now - self.heard_at) / FORGET_S) + 1
        self.heard_at = now
        # What was forgotten of a guess in a few seconds does not make another one free.
        if (beyond := ceil(self.guesses) - patience.free) >= 0:
            # A sum that grows for weeks must not overflow.
            self.heard_at += min(patience.first_s * 2 ** min(beyond, 32), patience.most_s)

    def take_back(self, patience: Patience, now: float) -> None:
        """Count the last guess no more."""
        self.guesses = max(0.0, self.guesses - 1)
        if self.guesses < patience.free:
            self.heard_at = min(self.heard_at, now)


class Throttle:
    """Who is heard when."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` gives seconds that never go back."""
        self._clock = clock
        self._tallies: dict[str, _Tally] = {}
        self._refused_at: dict[str, float] = {}
        """Network -> when one of its guesses was not looked at last."""
        self.failures = Counter(wrong=0, refused=0)
        """Guesses that let nobody in, by what became of them."""

    def charge(self, source: Source, device: str = "") -> float:
        """Take a guess from `source`: 0.0, or the seconds for which it will not be heard.

        `device` names a browser that somebody has logged in with.
        """
        now = self._clock()
        accounts = _accounts(source, device)
        wait = max(self._wait(account, now) for account in accounts)
        if wait:
            self._refused(source, now)
            return wait
        for account, patience in accounts.items():
            # Taken out and put in again, so that the first is the one that was quiet longest.
            self._tallies[account] = tally = self._tallies.pop(account, None) or _Tally(now)
            tally.add(patience, now)
        while len(self._tallies) > ACCOUNTS_MAX:
            del self._tallies[next(iter(self._tallies))]
        return 0.0

    def forgive(self, source: Source, device: str = "") -> None:
        """The guess was right: it does not count, nor do those of its address or browser."""
        now = self._clock()
        for account, patience in _accounts(source, device).items():
            if account in (device, source.address):
                self._tallies.pop(account, None)
            elif tally := self._tallies.get(account):
                tally.take_back(patience, now)

    def wrong(self) -> None:
        """Count a guess that was looked at, and wrong."""
        self.failures["wrong"] += 1

    def refused_networks(self) -> list[str]:
        """The networks whose guesses were not looked at within the last minute."""
        now = self._clock()
        return [network for network, at in self._refused_at.items() if now < at + TOLD_S]

    def _wait(self, account: str, now: float) -> float:
        tally = self._tallies.get(account)
        return 0.0 if tally is None else max(0.0, tally.heard_at - now)

    def _refused(self, source: Source, now: float) -> None:
        self.failures["refused"] += 1
        self._refused_at.pop(source.network, None)
        self._refused_at[source.network] = now
        while len(self._refused_at) > ACCOUNTS_MAX:
            del self._refused_at[next(iter(self._refused_at))]


def _accounts(source: Source, device: str) -> dict[str, Patience]:
    """The accounts that a guess is charged to."""
    if device:
        return {device: DEVICE}
    if source.is_here:
        return {source.address: ADDRESS}
    return {source.address: ADDRESS, source.network: NETWORK, _EVERYBODY: EVERYBODY}

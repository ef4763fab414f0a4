"""Limits on the rate of guesses of passwords and setup codes.

A guess is charged to its address, to its network (a /24, or a /64 of IPv6: a host of a LAN may take
any address there), and to an account that all strangers share. Each of these has a few free
guesses; then it waits before the next, twice as long each time. Guesses are forgotten over time. A
right guess is not counted and clears its address. Every guess is charged before it is checked, so
that of a hundred sent at once not all hundred are checked.

A browser that a user has logged in with before has its own account (`egressd.console.devices`), and
so has this machine: guesses from elsewhere do not lock out the operator.

The accounts are kept in memory. A restart clears them, but a user who can restart the service needs
no password.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import ceil
from typing import Final, NamedTuple

from egressd.model.source import Source

ACCOUNTS_MAX: Final = 4096
"""Accounts remembered; beyond this number, the one that has been quiet longest is forgiven."""
FORGET_S: Final = 600.0
"""Seconds in which an account that does not have to wait forgets one guess."""
TOLD_S: Final = 60.0
"""Seconds for which refused guesses are reported as a problem."""


class Patience(NamedTuple):
    """The guesses that an account may make."""

    free: int
    """Guesses before the first wait."""
    first_s: float
    """Seconds of the first wait."""
    most_s: float
    """Seconds of the longest wait; each guess doubles the wait up to this."""


ADDRESS: Final = Patience(5, 60.0, 3600.0)
NETWORK: Final = Patience(20, 30.0, 900.0)
EVERYBODY: Final = Patience(50, 5.0, 60.0)
"""The shared account of all strangers: 1,440 guesses a day at most."""
DEVICE: Final = Patience(10, 10.0, 600.0)
"""The account of a browser that a user has logged in with."""
_EVERYBODY: Final = ""


class _Tally:
    """The guesses of one account."""

    __slots__ = ("guesses", "heard_at")

    def __init__(self, now: float) -> None:
        self.guesses = 0.0
        self.heard_at = now
        """The time from which the next guess is accepted."""

    def add(self, patience: Patience, now: float) -> None:
        """Count a guess that is accepted now. Guesses are not forgotten during a wait."""
        self.guesses = max(0.0, self.guesses - (now - self.heard_at) / FORGET_S) + 1
        self.heard_at = now
        # A fraction of a guess that was forgotten in a few seconds does not make another guess
        # free.
        if (beyond := ceil(self.guesses) - patience.free) >= 0:
            # The bound on the exponent prevents an overflow in a count that grows for weeks.
            self.heard_at += min(patience.first_s * 2 ** min(beyond, 32), patience.most_s)

    def take_back(self, patience: Patience, now: float) -> None:
        """Take the last guess out of the count."""
        self.guesses = max(0.0, self.guesses - 1)
        if self.guesses < patience.free:
            self.heard_at = min(self.heard_at, now)


class GuessThrottle:
    """Decides when each account's next guess is accepted."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """`clock` returns seconds that never go back."""
        self._clock = clock
        self._tallies: dict[str, _Tally] = {}
        self._refused_at: dict[str, float] = {}
        """The time of the last refused guess of each network."""
        self.failures = Counter(wrong=0, refused=0)
        """Failed guesses: checked and wrong, or refused without a check."""

    def charge(self, source: Source, device: str = "") -> float:
        """Charge a guess from `source` and return 0.0, or return the seconds of its refusal.

        `device` names a browser that a user has logged in with.
        """
        now = self._clock()
        accounts = _accounts(source, device)
        wait = max(self._wait(account, now) for account in accounts)
        if wait:
            self._refused(source, now)
            return wait
        for account, patience in accounts.items():
            # Removed and inserted again, so that the first account is the one that was quiet
            # longest.
            self._tallies[account] = tally = self._tallies.pop(account, None) or _Tally(now)
            tally.add(patience, now)
        while len(self._tallies) > ACCOUNTS_MAX:
            del self._tallies[next(iter(self._tallies))]
        return 0.0

    def forgive(self, source: Source, device: str = "") -> None:
        """Note that the guess was right: uncount it, and clear its address or browser."""
        now = self._clock()
        for account, patience in _accounts(source, device).items():
            if account in (device, source.address):
                self._tallies.pop(account, None)
            elif tally := self._tallies.get(account):
                tally.take_back(patience, now)

    def wrong(self) -> None:
        """Count a guess that was checked and wrong."""
        self.failures["wrong"] += 1

    def refused_networks(self) -> list[str]:
        """Return the networks with guesses that were refused within the last minute."""
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
    """Return the accounts that a guess is charged to."""
    if device:
        return {device: DEVICE}
    if source.is_here:
        return {source.address: ADDRESS}
    return {source.address: ADDRESS, source.network: NETWORK, _EVERYBODY: EVERYBODY}

"""Rate limit for guesses: the generic cell rate algorithm (ITU-T I.371).

An account costs one number: the time at which its debt is paid off. A guess adds to the debts of
those accounts that it is charged to, such as its address and its network; time pays them. The
caller decides the effect of a debt.
"""

from __future__ import annotations

from typing import Final

ACCOUNTS_MAX: Final = 4096
"""Accounts remembered; beyond that, the one that has been quiet longest is forgotten."""


class Gcra:
    """The debts of accounts, by key. Times are seconds of a clock that never goes back."""

    def __init__(self) -> None:
        self._paid_at: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._paid_at)

    def __contains__(self, account: str) -> bool:
        """True if an account is remembered: it has a debt, or had one that was not forgiven."""
        return account in self._paid_at

    def of(self, account: str, now: float) -> float:
        """Return the seconds until `account` has no debt."""
        return max(0.0, self._paid_at.get(account, now) - now)

    def charge(self, account: str, seconds: float, now: float) -> None:
        """Charge a guess that costs `seconds` to an account."""
        # Removed and inserted again, so that the first key is the one that was quiet longest.
        self._paid_at[account] = max(self._paid_at.pop(account, now), now) + seconds
        if len(self._paid_at) > ACCOUNTS_MAX:
            self._paid_at = {key: at for key, at in self._paid_at.items() if at > now}
        while len(self._paid_at) > ACCOUNTS_MAX:
            del self._paid_at[next(iter(self._paid_at))]

    def forgive(self, account: str) -> None:
        """Delete an account and its debt."""
        self._paid_at.pop(account, None)

"""What callers owe for their guesses: the generic cell rate algorithm (ITU-T I.371).

Each source costs one number: the time at which its debt is paid off. A guess adds to the debt of
its source and to that of all together; time pays both. What a debt leads to is for the caller to
say: the API answers late, the console does not hear.
"""

from __future__ import annotations

from typing import Final

SOURCES_MAX: Final = 4096
"""Sources remembered; beyond, the one that has been quiet longest is forgiven."""


class Debts:
    """The debts of sources. Times are seconds of a clock that never goes back."""

    def __init__(self, *, each_s: float, all_s: float) -> None:
        """A guess costs its source `each_s` seconds, and all sources together `all_s`."""
        self._each_s = each_s
        self._all_s = all_s
        self._paid_at: dict[str, float] = {}
        self._all_paid_at = 0.0

    def __len__(self) -> int:
        return len(self._paid_at)

    def __contains__(self, source: str) -> bool:
        """Whether a source is remembered: it owes something, or did and was not forgiven."""
        return source in self._paid_at

    def of(self, source: str, now: float) -> float:
        """Seconds until `source` owes nothing."""
        return max(0.0, self._paid_at.get(source, now) - now)

    def of_all(self, now: float) -> float:
        """Seconds until all sources together owe nothing."""
        return max(0.0, self._all_paid_at - now)

    def charge(self, source: str, now: float) -> None:
        """Put a guess on the account of `source`."""
        self._all_paid_at = max(self._all_paid_at, now) + self._all_s
        # Taken out and put in again, so that the first key is the one that was quiet longest.
        self._paid_at[source] = max(self._paid_at.pop(source, now), now) + self._each_s
        if len(self._paid_at) > SOURCES_MAX:
            self._paid_at = {key: at for key, at in self._paid_at.items() if at > now}
        while len(self._paid_at) > SOURCES_MAX:
            del self._paid_at[next(iter(self._paid_at))]

    def forgive(self, source: str) -> None:
        """Forget what `source` owes, and that it ever did."""
        self._paid_at.pop(source, None)

"""How long a line that went down waits before it is dialled again."""

from __future__ import annotations

from typing import Final

from egressd.netd.lines.failure import Cause

FIRST_S: Final = 1.0
MAX_S: Final = 60.0

EAGER_ATTEMPTS: Final = 150
"""Attempts at a silent server before the wait grows, see `EAGER_MAX_S`."""
EAGER_MAX_S: Final = 2.0
"""A server that does not answer is asked often at first, as most outages are short: for half an
hour when it is silent, for five minutes when its machine says that nobody is there. An attempt asks
at least every four seconds, so a line is back within ten seconds of its path."""

REFUSED_FIRST_S: Final = 60.0
REFUSED_MAX_S: Final = 600.0
"""After a wrong password or secret: servers lock accounts that try too often."""

MISSING_S: Final = 30.0
"""After a program or kernel module was missed: to look again costs next to nothing."""

AT_ONCE_S: Final = 0.2
"""Before a line that was lost is dialled again, its state says why for so long."""

STEADY_S: Final = 30.0
"""A line that was online for so long is dialled at once, and its failures count anew. One that
was online for less is dialled at once only if nothing else failed before."""


class Backoff:
    """Counts a line's failures, and says how long to wait after each."""

    def __init__(self) -> None:
        self._streak = 0
        self._cause: Cause | None = None

    def delay(self, cause: Cause, online_s: float) -> float | None:
        """Seconds to wait after a failure; None: until the line is changed.

        `online_s` is how long the line was online before it failed, 0 when it never was.
        """
        if cause is Cause.INVALID:
            return None
        if cause is Cause.MISSING:
            return MISSING_S
        if online_s >= STEADY_S:
            self._streak, self._cause = 0, cause
            return AT_ONCE_S
        if self._cause is Cause.UNREACHABLE and cause is not Cause.UNREACHABLE:
            self._streak = 0  # a server that answers again, though with a refusal
        first, most = FIRST_S, MAX_S
        if cause in (Cause.WRONG_PASSWORD, Cause.WRONG_SECRET):
            first, most = REFUSED_FIRST_S, REFUSED_MAX_S
            if self._cause is not cause:
                self._streak = 0
        self._cause = cause
        self._streak += 1
        if online_s and self._streak == 1:
            return AT_ONCE_S
        if cause is Cause.UNREACHABLE and self._streak <= EAGER_ATTEMPTS:
            most = EAGER_MAX_S
        return float(min(first * 2 ** min(self._streak - 1, 16), most))

    def reset(self) -> None:
        """Forget the failures: what led to them has changed."""
        self._streak, self._cause = 0, None

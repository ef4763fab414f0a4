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
hour when it is silent, for five minutes when its machine says that nobody is there, which PPTP's
call manager hears and xl2tpd does not. An attempt asks at least every four seconds, so a line is
back within ten seconds of its path."""

REFUSED_FIRST_S: Final = 60.0
REFUSED_MAX_S: Final = 600.0
"""After a wrong password or secret: servers lock accounts that try too often."""

IN_USE_FIRST_S: Final = 5.0
IN_USE_MAX_S: Final = 12.0
"""After a login that is right was refused since the account is in use: for 15 seconds at most, with
what chance adds."""

PROVEN_MAX_S: Final = 6.0
"""After other failures of a line that has been online as it is configured."""

PROVEN_ATTEMPTS: Final = 40
"""So often a line that has been online is dialled after these short pauses: servers hold a session
for some minutes. From then on it waits as long as others."""

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
        self._was_in_use = False

    def delay(
        self, cause: Cause, online_s: float, *, is_proven: bool = False, is_in_use: bool = False
    ) -> float | None:
        """Seconds to wait after a failure; None: until the line is changed.

        `online_s` is how long the line was online before it failed, 0 when it never was.
        `is_proven`: it has been online as it is configured. `is_in_use`: see `AccountInUse`.
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
        is_refusal = is_in_use or cause in (Cause.WRONG_PASSWORD, Cause.WRONG_SECRET)
        if is_refusal:
            first, most = REFUSED_FIRST_S, REFUSED_MAX_S
            if (self._cause, self._was_in_use) != (cause, is_in_use):
                self._streak = 0
        self._cause, self._was_in_use = cause, is_in_use
        self._streak += 1
        if online_s and self._streak == 1:
            return AT_ONCE_S
        doubled = self._streak - 1
        if cause is Cause.UNREACHABLE and self._streak <= EAGER_ATTEMPTS:
            most = EAGER_MAX_S
        elif is_in_use and self._streak <= PROVEN_ATTEMPTS:
            first, most = IN_USE_FIRST_S, IN_USE_MAX_S
        elif is_in_use:
            doubled -= PROVEN_ATTEMPTS
        elif is_proven and not is_refusal and self._streak <= PROVEN_ATTEMPTS:
            most = PROVEN_MAX_S
        return float(min(first * 2 ** min(doubled, 16), most))

    @property
    def streak(self) -> int:
        """Number of failures since the line was up, or since what led to them changed."""
        return self._streak

    def reset(self) -> None:
        """Forget the failures: what led to them has changed."""
        self._streak, self._cause = 0, None

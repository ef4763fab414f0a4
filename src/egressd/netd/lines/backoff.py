"""The wait of a line that went down, until it is dialled again."""

from __future__ import annotations

from typing import Final

from egressd.netd.lines.failure import Cause

FIRST_S: Final = 1.0
MAX_S: Final = 60.0

EAGER_ATTEMPTS: Final = 150
"""Attempts at a silent server before the wait grows beyond `EAGER_MAX_S`."""
EAGER_MAX_S: Final = 2.0
"""Longest wait, in seconds, after one of these attempts. They take half an hour if the server is
silent, and five minutes if its machine reports a closed port, which PPTP's call manager hears and
xl2tpd does not. Most outages are shorter. An attempt sends a request at least every four seconds,
so a line is back within ten seconds of its path.
"""

REFUSED_FIRST_S: Final = 60.0
REFUSED_MAX_S: Final = 600.0
"""Seconds after a wrong password or secret: servers lock accounts that try too often."""

IN_USE_FIRST_S: Final = 5.0
IN_USE_MAX_S: Final = 12.0
"""Seconds after a right login was refused since the account is in use: at most 15 with the random
share."""

TAKEOVER_S: Final = 2.0
"""Seconds after such a refusal that follows a takeover from the other box of a pair."""
TAKEOVER_TRIES: Final = 5
"""Refusals after a takeover that are followed by this short wait, one after each: too few for a
server to lock the account."""

PROVEN_MAX_S: Final = 6.0
"""Seconds after other failures of a line that has been online as it is configured."""

PROVEN_ATTEMPTS: Final = 40
"""Attempts of a line that has been online after these short pauses: servers hold a session for some
minutes. From then on it waits as long as other lines."""

MISSING_S: Final = 30.0
"""Seconds after a program or kernel module was missing. The check costs next to nothing."""

AT_ONCE_S: Final = 0.2
"""Seconds before a line that was lost is dialled again. Its state has the reason meanwhile."""

STEADY_S: Final = 30.0
"""Seconds online after which a lost line is dialled at once, and its failures count from zero. A
line that was online for less is dialled at once only if no failure came before.
"""


class Backoff:
    """Counts a line's failures, and computes the wait after each."""

    def __init__(self) -> None:
        self._streak = 0
        self._cause: Cause | None = None
        self._was_in_use = False
        self._quick_tries = 0

    def take_over(self) -> None:
        """Note that the other box of a pair had the line online until now."""
        self._quick_tries = TAKEOVER_TRIES

    @property
    def is_after_takeover(self) -> bool:
        """True until the line has been online since the takeover, or was refused too often."""
        return self._quick_tries > 0

    def delay(
        self,
        cause: Cause,
        online_s: float,
        *,
        is_proven: bool = False,
        is_in_use: bool = False,
        is_carrier_changed: bool = False,
    ) -> float | None:
        """Return the seconds to wait after a failure; None: until the line is changed.

        `online_s` is how long the line was online before it failed, 0 when it never was.
        `is_proven`: it has been online as it is configured. `is_in_use`: see `AccountInUse`.
        `is_carrier_changed`: see `CarrierChanged`; it counts as no failure.
        """
        if online_s:
            self._quick_tries = 0
        elif is_in_use and self._quick_tries:
            self._quick_tries -= 1
            return TAKEOVER_S
        if is_carrier_changed:
            return AT_ONCE_S
        if cause is Cause.INVALID:
            return None
        if cause is Cause.MISSING:
            return MISSING_S
        return self._growing(cause, online_s, is_proven=is_proven, is_in_use=is_in_use)

    def _growing(self, cause: Cause, online_s: float, *, is_proven: bool, is_in_use: bool) -> float:
        """Return the seconds to wait after a failure that counts."""
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
        """The number of failures since the line was up, or since their cause changed."""
        return self._streak

    def reset(self) -> None:
        """Forget the failures: their cause has changed."""
        self._streak, self._cause = 0, None

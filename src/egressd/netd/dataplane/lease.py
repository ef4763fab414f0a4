"""The lease of a member of a site: the time until which the kernel lets clients through.

netd is only the hand that writes it: the elements of the set ``lease`` (`planner.lease_rules`) have
a time-out, and the fast path's programs compare a deadline with the kernel's clock. So clients are
blocked at the end of the lease whether or not netd runs.

A time-out is a duration, so a netd that is frozen between its look at the clock and its write would
prolong the lease by that time. Therefore each write needs an element of a tenth of a second, which
it takes out in the same transaction: if that has expired, the kernel refuses the whole write.
"""

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import Callable
from typing import Final

import structlog

from egressd.model.errors import Failed, Invalid
from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import KeptSocket, NetlinkError, NetlinkSocket
from egressd.netd.kernel.set_elements import INET, expires_in_ms, replace_timed
from egressd.planner.lease_rules import LEASE

log = structlog.get_logger()

AHEAD_MAX_MS: Final = 10_000
"""Milliseconds that the end of a lease may be ahead."""
LEFT_MIN_MS: Final = 100
"""Milliseconds that a lease is written for at least. A time-out of less than a tick of the kernel
(10 ms at most) would be none: the element would stay for ever."""
_WRITE_MS: Final = 100
"""Milliseconds that a write may take from the look at the clock."""
_TRIES: Final = 5
"""Writes at most of one renewal."""
_FAMILIES: Final = (bytes([uapi.NFPROTO_IPV4]), bytes([uapi.NFPROTO_IPV6]))
_TURN: Final = bytes([uapi.NFPROTO_UNSPEC])
"""The element that a write needs and takes out: no packet is of this family."""


class Lease:
    """The lease in the kernel. `follow` gets each end of it, for the fast path."""

    def __init__(self, follow: Callable[[int], None]) -> None:
        self._follow = follow
        self._until_ms = 0
        """The end that the api has given last."""
        self._written_ms = 0
        """The end that is in the kernel."""
        self._socket = KeptSocket(uapi.NETLINK_NETFILTER)
        self._turn = asyncio.Lock()

    @property
    def left_ms(self) -> int:
        """Milliseconds until the end in the kernel; 0 once it is over, or if there was none yet."""
        return max(0, self._written_ms - _now_ms())

    def load_previous(self) -> None:
        """Take over a lease that runs, an earlier netd's. Raises OSError, Failed."""
        now_ms = _now_ms()  # before the look, so that the end is not later than in the kernel
        with self._socket as kernel:
            left_ms = expires_in_ms(kernel, INET, LEASE, _FAMILIES[0])
        if left_ms:
            self._until_ms = self._written_ms = now_ms + left_ms
            self._follow(self._until_ms)

    async def renew(self, until_ms: int, *, is_gated: bool) -> None:
        """Let clients through until then, in milliseconds of CLOCK_BOOTTIME.

        Without a gate in force it is kept for a plan that needs one. Raises Invalid, Failed.
        """
        left_ms = until_ms - _now_ms()
        if left_ms < LEFT_MIN_MS:
            raise Invalid("until_ms must be a moment to come")
        if left_ms > AHEAD_MAX_MS:
            raise Invalid(f"until_ms must be at most {AHEAD_MAX_MS} ms ahead")
        self._until_ms = until_ms
        if is_gated:
            await self.put()

    async def put(self) -> None:
        """Write the lease, if it runs, to the table and the fast path. Raises Failed."""
        async with self._turn:
            until_ms = self._until_ms
            if until_ms - _now_ms() >= LEFT_MIN_MS:
                await asyncio.to_thread(self._write, until_ms)
                self._written_ms = until_ms
                self._follow(until_ms)

    def _write(self, until_ms: int) -> None:
        """Write the elements; not by two threads at once. Raises Failed."""
        try:
            for _ in range(_TRIES):
                with self._socket as kernel:
                    replace_timed(kernel, INET, LEASE, {_TURN: _WRITE_MS})
                    if _has_written(kernel, until_ms):
                        return
        except OSError as error:
            raise Failed("renew the lease", error.strerror or str(error)) from error
        raise Failed("renew the lease", f"it took more than {_WRITE_MS} ms each time")


def _has_written(kernel: NetlinkSocket, until_ms: int) -> bool:
    """Write the elements, unless more than `_WRITE_MS` have passed since `_TURN` was put in.

    Raises OSError.
    """
    left_ms = until_ms - _now_ms()
    if left_ms < LEFT_MIN_MS:
        raise OSError(errno.ETIME, "its end came before it was written")
    try:
        replace_timed(kernel, INET, LEASE, dict.fromkeys(_FAMILIES, left_ms), needed=(_TURN,))
    except NetlinkError as error:
        if error.errno != errno.ENOENT:
            raise
        return False
    return True


def _now_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000

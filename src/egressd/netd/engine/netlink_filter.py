"""A filter of the link and route events that the instances of a worker receive.

A sing-box instance subscribes to all of them by netlink. After each message it lists interfaces and
routes anew, which takes 2 ms of processor time and leaves 90 KB of garbage: with 1,000 instances
two seconds and 90 MB whenever a port of a bridge changes, or egressd makes a route. An instance's
packets bear a mark by which the kernel routes them, so it only needs the event that the main
table's default route may have changed: it then ends QUIC and multiplexed sessions, which would hang
on the old route. So its sockets get a filter (`egressd.netd.kernel.classic_bpf`) that only passes

- an IPv4 default route that is added to the main table or removed from it;
- a link that does not run, since its routes disappear without a message: except PPP links, whose
  routes egressd makes, and a bridge's messages about its ports.

Messages are a ``struct nlmsghdr`` and an ``ifinfomsg`` or ``rtmsg`` (rtnetlink(7)).
"""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from contextlib import suppress
from typing import Final

from egressd.netd.kernel import classic_bpf, uapi
from egressd.netd.kernel.classic_bpf import BODY_AT, TYPE_AT, Check

_GATHER_S: Final = 0.5
"""Seconds until sockets are filtered: instances that start within this time are handled
together."""


def _default_route(message: int) -> tuple[Check, ...]:
    return (
        Check("H", TYPE_AT, "is", message),
        Check("B", BODY_AT, "is", socket.AF_INET),
        Check("B", BODY_AT + 1, "is", 0),  # prefix length of the destination
        Check("B", BODY_AT + 4, "is", uapi.RT_TABLE_MAIN),
    )


_FILTER: Final = classic_bpf.any_of(
    (
        (
            Check("H", TYPE_AT, "is", uapi.RTM_NEWLINK),
            Check("B", BODY_AT, "is", socket.AF_UNSPEC),
            Check("H", BODY_AT + 2, "is not", uapi.ARPHRD_PPP),
            Check("I", BODY_AT + 8, "lacks", uapi.IFF_RUNNING),
        ),
        _default_route(uapi.RTM_NEWROUTE),
        _default_route(uapi.RTM_DELROUTE),
    )
)


def attach_filters() -> None:
    """Put the filter on every socket of this process that subscribes to links or routes.

    Repeat-safe: the kernel accepts a filter in place of the same one.
    """
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 (a path each would be slower)
        with suppress(OSError):  # closed meanwhile
            _narrow(int(name))


def _narrow(descriptor: int) -> None:
    # Other threads close and open descriptors: the copy keeps referring to the same file.
    copy = os.dup(descriptor)
    if not stat.S_ISSOCK(os.fstat(copy).st_mode):
        os.close(copy)
        return
    with socket.socket(fileno=copy) as opened:
        is_netlink = (opened.family, opened.proto) == (socket.AF_NETLINK, socket.NETLINK_ROUTE)
        # A socket without groups sends requests, and waits for complete answers.
        if is_netlink and opened.getsockname()[1]:
            classic_bpf.attach(opened, _FILTER)


class FilterAttacher:
    """Calls `attach_filters` for started instances, a moment later.

    In a thread: it takes 20 µs a socket, of which a worker may have 100,000, and a worker that is
    silent for two seconds counts as dead.
    """

    def __init__(self) -> None:
        self._is_due = False
        self._running: asyncio.Task[None] | None = None

    def soon(self) -> None:
        """Report that an instance was started. To be called in the event loop."""
        self._is_due = True
        if self._running is None:
            self._running = asyncio.create_task(self._attend())

    async def _attend(self) -> None:
        try:
            while self._is_due:
                await asyncio.sleep(_GATHER_S)
                self._is_due = False
                await asyncio.to_thread(attach_filters)
        finally:
            self._running = None

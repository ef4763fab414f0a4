"""A watcher of other programs' changes to packet handling on interfaces of the fast path.

rtnetlink announces queueing disciplines and filters on the multicast group RTNLGRP_TC. Programs
that are attached without a filter (tcx) are not announced at all.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from egressd.netd.kernel import traffic_control as tc
from egressd.netd.kernel import uapi
from egressd.netd.kernel.classic_bpf import PORT_AT, TYPE_AT, Check, any_of
from egressd.netd.kernel.event_watcher import EventWatcher
from egressd.netd.kernel.fast_path.path import FastPath
from egressd.netd.kernel.netlink import Message, NetlinkListener

_CHANGES: Final = (uapi.RTM_NEWQDISC, uapi.RTM_DELQDISC, uapi.RTM_NEWTFILTER, uapi.RTM_DELTFILTER)


class ForeignFilters(EventWatcher):
    """Awaits ``on_change()`` soon after filters or qdiscs changed on interfaces that concern
    `fast_path`.

    Our own filters' changes count too, so a call that has nothing left to do must change nothing;
    changes by the netlink port `limits`, which changes the queues of limited clients, do not count.
    Announcements that the kernel had to drop count as a change.
    """

    def __init__(
        self, fast_path: FastPath, limits: int, on_change: Callable[[], Awaitable[None]]
    ) -> None:
        self._fast_path = fast_path
        self._limits = limits
        self._on_change = on_change

    def _listen(self) -> NetlinkListener:
        not_limits = Check("I", PORT_AT, "is not", self._limits)
        heard = [(Check("H", TYPE_AT, "is", kind), not_limits) for kind in _CHANGES]
        return NetlinkListener(uapi.NETLINK_ROUTE, [uapi.RTNLGRP_TC], self._heard, any_of(heard))

    async def _call(self) -> None:
        await self._on_change()

    def _heard(self, heard: list[Message], lost: bool) -> None:
        touched = {tc.HEADER.unpack_from(message.body)[1] for message in heard}
        if lost or any(map(self._fast_path.is_concerned, touched)):
            self._follower.notify()

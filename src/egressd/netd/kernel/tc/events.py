"""A watcher of other programs' changes to our queueing disciplines or classes (``tc qdisc del …``).

rtnetlink announces them on the multicast group RTNLGRP_TC. An announcement bears the netlink port
of the socket that caused it, which identifies our own changes; a BPF program keeps those from
waking this process at all. (`machine_facts.FactsWatcher` reports the removal of devices.)
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from egressd.netd.kernel import uapi
from egressd.netd.kernel.event_watcher import EventWatcher, not_from
from egressd.netd.kernel.netlink import Message, NetlinkListener
from egressd.netd.kernel.tc import messages
from egressd.netd.kernel.tc.shaper import Shaper

_CHANGES: Final = (
    uapi.RTM_NEWQDISC,
    uapi.RTM_DELQDISC,
    uapi.RTM_NEWTCLASS,
    uapi.RTM_DELTCLASS,
)


class ForeignShaping(EventWatcher):
    """Awaits ``on_change(reason)`` soon after another program changed the trees of `shaper`.

    `shaper` must have been synchronised once. Announcements that the kernel had to drop count as
    foreign.
    """

    def __init__(self, shaper: Shaper, on_change: Callable[[str], Awaitable[None]]) -> None:
        self._shaper = shaper
        self._on_change = on_change
        self._reason = ""

    def _listen(self) -> NetlinkListener:
        return NetlinkListener(
            uapi.NETLINK_ROUTE, [uapi.RTNLGRP_TC], self._heard, not_from({self._shaper.port})
        )

    async def _call(self) -> None:
        await self._on_change(self._reason)

    def _heard(self, heard: list[Message], lost: bool) -> None:
        ours = self._shaper.devices
        touched = {
            messages.interface_of(message.body) for message in heard if message.kind in _CHANGES
        }
        if touched & ours:
            self._reason = "another program changed the queues of limited clients"
        elif lost:
            self._reason = "changes of queues came faster than they could be read"
        else:
            return
        self._follower.notify()

"""Tells when another program changed queueing disciplines or classes of ours (``tc qdisc del …``).

rtnetlink announces them on the multicast group RTNLGRP_TC. An announcement bears the
netlink port of the socket that caused it, and that is how our own are known; a BPF program
keeps those from waking this process at all. (Devices that go are `facts.Watcher`'s to tell.)
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Final, Self

from egressd.netd.kernel.follower import Follower
from egressd.netd.kernel.netlink import ROUTE, Listener, Message
from egressd.netd.kernel.shaping import messages
from egressd.netd.kernel.shaping.shaper import Shaper

_GROUP_TC: Final = 4
_CHANGES: Final = (
    messages.NEW_QDISC,
    messages.DELETE_QDISC,
    messages.NEW_CLASS,
    messages.DELETE_CLASS,
)

# The port in struct nlmsghdr, and classic BPF's instructions (linux/filter.h).
_PORT_AT: Final = 12
_LOAD_WORD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_WHOLE, _NOTHING = 0xFFFF_FFFF, 0


class ForeignShaping:
    """Awaits ``on_change(reason)`` soon after another program changed the trees of `shaper`.

    `shaper` must have been synchronised once. Announcements that the kernel had to drop
    count as foreign. See `Follower` for how often it calls. An asynchronous context
    manager: it watches from entering to leaving.
    """

    def __init__(self, shaper: Shaper, on_change: Callable[[str], Awaitable[None]]) -> None:
        self._shaper = shaper
        self._on_change = on_change
        self._reason = ""

    async def __aenter__(self) -> Self:
        self._follower = Follower(lambda: self._on_change(self._reason))
        self._listener = Listener(ROUTE, [_GROUP_TC], self._heard, _all_but_from(self._shaper.port))
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()
        await self._follower.close()

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
        self._follower.tell()


def _all_but_from(port: int) -> bytes:
    """Classic BPF that drops what `port` caused. It loads in network byte order what netlink
    holds in the host's."""
    return b"".join(
        (
            struct.pack("=HBBI", _LOAD_WORD, 0, 0, _PORT_AT),
            struct.pack("=HBBI", _JUMP_IF_EQUAL, 0, 1, socket.htonl(port)),
            struct.pack("=HBBI", _RETURN, 0, 0, _NOTHING),
            struct.pack("=HBBI", _RETURN, 0, 0, _WHOLE),
        )
    )

"""A watcher of other processes' nftables changes.

The kernel announces each committed transaction with NFT_MSG_NEWGEN on nfnetlink's multicast group
NFNLGRP_NFTABLES. The message bears the netlink port of the socket that sent the transaction, which
is unique in the network namespace; our own transactions are recognised by it. (The process id in
the message is the *thread's*, as the first pid namespace numbers it, and so of no use in a
container or with worker threads.) A BPF program keeps both our own transactions and the
announcements of single elements from waking this process at all.

If only changes of one family's tables matter, the announcements of a transaction's single changes
are received in place of its end: they name the family.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from egressd.netd.kernel import uapi
from egressd.netd.kernel.event_watcher import EventWatcher, not_from
from egressd.netd.kernel.netlink import Message, NetlinkListener, attributes, text

_NEW_GENERATION: Final = uapi.NFNL_SUBSYS_NFTABLES << 8 | uapi.NFT_MSG_NEWGEN
_NFGENMSG_BYTES = 4

LOST: Final = "changes of the ruleset came faster than they could be read"
"""The reason given if the kernel dropped announcements."""


class ForeignChanges(EventWatcher):
    """Awaits ``on_change(reason)`` soon after another process changed nftables.

    `reason` names that process, for a log. With `family` (one of NFPROTO_…), changes of other
    families' tables are not reported. Announcements that the kernel had to drop count as foreign.
    """

    def __init__(
        self, on_change: Callable[[str], Awaitable[None]], *, family: int | None = None
    ) -> None:
        self._on_change = on_change
        self._family = family
        self._reason = ""
        self._ports = frozenset[int]()

    def _listen(self) -> NetlinkListener:
        self._ports = _own_ports()
        return NetlinkListener(
            uapi.NETLINK_NETFILTER, [uapi.NFNLGRP_NFTABLES], self._heard, self._program()
        )

    async def _call(self) -> None:
        await self._on_change(self._reason)

    def _heard(self, messages: list[Message], lost: bool) -> None:
        foreign = self._foreign(messages)
        if foreign and not self._ports >= (ports := _own_ports()):
            # A socket of ours that was unknown: that of an Nft which ran for the first time.
            self._ports = ports
            self._listener.attach(self._program())
            foreign = self._foreign(messages)
        if lost:
            self._reason = LOST
        elif foreign and self._family is not None:
            self._reason = "another program changed the tables of network devices"
        elif foreign:
            found = attributes(foreign[-1].body, _NFGENMSG_BYTES)
            pid = int.from_bytes(found.get(uapi.NFTA_GEN_PROC_PID, b""), "big")
            name = text(found.get(uapi.NFTA_GEN_PROC_NAME, b""))
            self._reason = f"{name} (process {pid}) changed the ruleset"
        else:
            return
        self._follower.notify()

    def _foreign(self, messages: list[Message]) -> list[Message]:
        return [m for m in messages if m.port not in self._ports and self._matters(m)]

    def _matters(self, message: Message) -> bool:
        if self._family is None:
            return message.kind == _NEW_GENERATION
        return message.kind != _NEW_GENERATION and message.body[0] == self._family

    def _program(self) -> bytes:
        return not_from(self._ports, _NEW_GENERATION if self._family is None else None)


def _own_ports() -> frozenset[int]:
    """Return the netlink ports of the nfnetlink sockets of this process."""
    ports = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            borrowed = socket.socket(fileno=int(entry.name))
        except OSError:  # no socket, or closed meanwhile
            continue
        try:
            if borrowed.family == socket.AF_NETLINK and borrowed.proto == uapi.NETLINK_NETFILTER:
                ports.add(borrowed.getsockname()[0])
        finally:
            borrowed.detach()
    return frozenset(ports - {0})  # 0: nothing was sent from it yet

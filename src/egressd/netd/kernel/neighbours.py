"""Neighbours: hosts on a link, as its address resolution finds them (rtnetlink(7), arp(7))."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Iterator
from ipaddress import IPv4Address
from socket import AF_INET
from typing import Final, NamedTuple

from egressd.netd.kernel import classic_bpf, uapi
from egressd.netd.kernel.classic_bpf import BODY_AT, TYPE_AT, Check
from egressd.netd.kernel.netlink import Message, NetlinkListener, NetlinkSocket, attributes

_MESSAGE: Final = struct.Struct("=B3xiHBB")  # ndmsg: family, interface, state, flags, type
_STATE_AT: Final = BODY_AT + 8
_CACHE: Final = struct.Struct("=IIII")  # nda_cacheinfo: confirmed, used, updated, refcnt
_USER_HZ: Final = 100
"""Units of the kernel's times in a second, for programs (``clock_t`` in times(2))."""
_UNSURE: Final = uapi.NUD_INCOMPLETE | uapi.NUD_FAILED | uapi.NUD_NOARP | uapi.NUD_PERMANENT
_MAC_BYTES: Final = 6


class Neighbour(NamedTuple):
    """A host on a link that has shown its hardware address."""

    interface: int
    """The interface's index."""
    address: bytes
    """IPv4, in network order."""
    mac: bytes
    age_s: float
    """Seconds since the kernel saw a sign of life of it, or had to note its hardware address."""


def is_unanswered(interface: int, address: IPv4Address) -> bool:
    """Return whether the resolution of a neighbour's address failed or is under way. Raises
    OSError.
    """
    return any(
        state & (uapi.NUD_INCOMPLETE | uapi.NUD_FAILED)
        for index, state, found in _entries()
        if (index, found) == (interface, address.packed)
    )


def living(interfaces: Collection[int]) -> set[bytes]:
    """Return the addresses, 4 bytes in network order, of neighbours that answered on `interfaces`.
    Raises OSError.

    The kernel drops neighbours that have been silent for some minutes, once there are more than
    128.
    """
    return {
        address
        for index, state, address in _entries()
        if index in interfaces and not state & _UNSURE
    }


def seen(interfaces: Collection[int]) -> list[Neighbour]:
    """Return the hosts on `interfaces` that have shown a hardware address of Ethernet. Raises
    OSError.
    """
    found = map(_neighbour, _table())
    return [each for each in found if each is not None and each.interface in interfaces]


class NeighbourEvents:
    """Calls ``heard(neighbours, lost)`` in the running event loop when a host shows its hardware
    address, or shows another one. ``lost`` is true if the kernel had to drop some.

    `pause` has the kernel drop all events until `resume`, so that a flood of them costs nothing.
    """

    def __init__(self, heard: Callable[[Iterable[Neighbour], bool], None]) -> None:
        self._heard = heard
        self._listener = NetlinkListener(
            uapi.NETLINK_ROUTE, (uapi.RTNLGRP_NEIGH,), self._hear, _PROGRAM
        )

    def pause(self) -> None:
        """Hear nothing."""
        self._listener.attach(_SILENCE)

    def resume(self) -> None:
        """Hear events from now on."""
        self._listener.attach(_PROGRAM)

    def close(self) -> None:
        """Stop listening."""
        self._listener.close()

    def _hear(self, messages: list[Message], lost: bool) -> None:
        found = (_neighbour(message.body) for message in messages)
        self._heard([each for each in found if each is not None], lost)


_PROGRAM: Final = classic_bpf.any_of(
    [
        [
            Check("H", TYPE_AT, "is", uapi.RTM_NEWNEIGH),
            Check("B", BODY_AT, "is", AF_INET),
            Check("H", _STATE_AT, "is", state),
        ]
        # A host that asks for this machine's address is noted as stale, one that answers as
        # reachable. The other states are steps between them.
        for state in (uapi.NUD_REACHABLE, uapi.NUD_STALE)
    ]
)
_SILENCE: Final = classic_bpf.any_of([])


def _neighbour(body: bytes) -> Neighbour | None:
    """Return the host that an entry is about, if it has shown its hardware address."""
    _, index, state, _, _ = _MESSAGE.unpack_from(body)
    found = attributes(body, _MESSAGE.size)
    address, mac = found.get(uapi.NDA_DST, b""), found.get(uapi.NDA_LLADDR, b"")
    if state & _UNSURE or len(mac) != _MAC_BYTES or mac[0] & 1 or not any(mac):
        return None
    confirmed, _, updated, _ = _CACHE.unpack(found[uapi.NDA_CACHEINFO])
    return Neighbour(index, address, mac, min(confirmed, updated) / _USER_HZ)


def _entries() -> Iterator[tuple[int, int, bytes]]:
    for body in _table():
        _, index, state, _, _ = _MESSAGE.unpack_from(body)
        yield index, state, attributes(body, _MESSAGE.size).get(uapi.NDA_DST, b"")


def _table() -> Iterator[bytes]:
    with NetlinkSocket(uapi.NETLINK_ROUTE) as asked:
        yield from asked.dump(uapi.RTM_GETNEIGH, _MESSAGE.pack(AF_INET, 0, 0, 0, 0))

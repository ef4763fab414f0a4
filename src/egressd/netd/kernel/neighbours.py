"""The states of neighbours: results of link address resolution (rtnetlink(7), arp(7))."""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from ipaddress import IPv4Address
from socket import AF_INET
from typing import Final

from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import NetlinkSocket, attributes

_MESSAGE: Final = struct.Struct("=B3xiHBB")  # ndmsg: family, interface, state, flags, type


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
    unsure = uapi.NUD_INCOMPLETE | uapi.NUD_FAILED | uapi.NUD_NOARP | uapi.NUD_PERMANENT
    return {
        address
        for index, state, address in _entries()
        if index in interfaces and not state & unsure
    }


def _entries() -> Iterator[tuple[int, int, bytes]]:
    with NetlinkSocket(uapi.NETLINK_ROUTE) as asked:
        for body in asked.dump(uapi.RTM_GETNEIGH, _MESSAGE.pack(AF_INET, 0, 0, 0, 0)):
            _, index, state, _, _ = _MESSAGE.unpack_from(body)
            yield index, state, attributes(body, _MESSAGE.size).get(uapi.NDA_DST, b"")

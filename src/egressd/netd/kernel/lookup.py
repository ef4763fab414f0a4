"""The kernel's route look-up for a client's packet, with all policy rules."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address
from socket import AF_INET
from typing import Final, NamedTuple

from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import NetlinkSocket, attribute, attributes, number, u32

_GET_ROUTE: Final = 26
_MESSAGE: Final = struct.Struct("=8BI")  # rtmsg: family, 2 lengths, tos, table, …, type, flags
_DESTINATION, _SOURCE, _IN, _OUT, _MARK = 1, 2, 3, 4, 16  # RTA_*
_KIND_AT: Final = 7
_LOCAL: Final = 2  # RTN_LOCAL
_ANYWHERE: Final = IPv4Address("1.1.1.1")
"""An arbitrary outside address. Nothing is sent there."""


class Way(NamedTuple):
    """The result of a look-up."""

    interface: int
    """Index of the interface by which the packet leaves."""
    is_local: bool
    """True if the packet is for this machine."""


def way_of(source: IPv4Address, interface: int, mark: int) -> Way:
    """Return the route of a packet from `source` that came in by `interface` and bears `mark`.

    Raises NetlinkError if there is none.
    """
    request = _MESSAGE.pack(AF_INET, 32, 32, 0, 0, 0, 0, 0, 0)
    request += attribute(_DESTINATION, _ANYWHERE.packed) + attribute(_SOURCE, source.packed)
    request += attribute(_IN, u32(interface)) + attribute(_MARK, u32(mark))
    with NetlinkSocket(uapi.NETLINK_ROUTE) as asked:
        (body,) = asked.request(_GET_ROUTE, request)
    found = attributes(body, _MESSAGE.size)
    return Way(number(found.get(_OUT)), body[_KIND_AT] == _LOCAL)

"""The kernel's route look-up for a client's packet, with all policy rules."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address
from socket import AF_INET
from typing import Final, NamedTuple

from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import NetlinkSocket, attribute, attributes, number, u32

_MESSAGE: Final = struct.Struct("=8BI")  # rtmsg: family, 2 lengths, tos, table, …, type, flags
_TYPE_AT: Final = 7  # offset of ``rtm_type``
_ANYWHERE: Final = IPv4Address("1.1.1.1")
"""An arbitrary outside address. Nothing is sent there."""


class RouteTaken(NamedTuple):
    """The result of a look-up."""

    interface: int
    """Index of the interface by which the packet leaves."""
    is_local: bool
    """True if the packet is for this machine."""


def route_of(source: IPv4Address, interface: int, mark: int) -> RouteTaken:
    """Return the route of a packet from `source` that came in by `interface` and bears `mark`.

    Raises NetlinkError if there is none.
    """
    request = _MESSAGE.pack(AF_INET, 32, 32, 0, 0, 0, 0, 0, 0)
    request += attribute(uapi.RTA_DST, _ANYWHERE.packed) + attribute(uapi.RTA_SRC, source.packed)
    request += attribute(uapi.RTA_IIF, u32(interface)) + attribute(uapi.RTA_MARK, u32(mark))
    with NetlinkSocket(uapi.NETLINK_ROUTE) as asked:
        (body,) = asked.request(uapi.RTM_GETROUTE, request)
    found = attributes(body, _MESSAGE.size)
    return RouteTaken(number(found.get(uapi.RTA_OIF)), body[_TYPE_AT] == uapi.RTN_LOCAL)

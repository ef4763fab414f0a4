"""IPv4 addresses of interfaces: to see whether they are there, and to remove them."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Mapping
from ipaddress import IPv4Interface
from typing import Final

from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import NetlinkError, NetlinkSocket, attribute, attributes

_IFADDRMSG: Final = struct.Struct("=BBBBI")
"""Family, prefix length, flags, scope, index (linux/if_addr.h)."""
_GONE: Final = (errno.EADDRNOTAVAIL, errno.ENODEV)


def holds(wanted: Mapping[str, IPv4Interface]) -> bool:
    """True if each interface has its address. Raises OSError."""
    present = set()
    with NetlinkSocket(uapi.NETLINK_ROUTE) as kernel:
        request = _IFADDRMSG.pack(socket.AF_INET, 0, 0, 0, 0)
        for body in kernel.dump(uapi.RTM_GETADDR, request):
            index = _IFADDRMSG.unpack_from(body)[4]
            found = attributes(body, _IFADDRMSG.size)
            present.add((index, bytes(found[uapi.IFA_LOCAL])))
    indexes = {name: index for index, name in socket.if_nameindex()}
    return all((indexes.get(name), each.ip.packed) in present for name, each in wanted.items())


def remove(unwanted: Mapping[str, IPv4Interface]) -> None:
    """Remove these addresses of interfaces, as far as they are there. Raises OSError."""
    indexes = {name: index for index, name in socket.if_nameindex()}
    with NetlinkSocket(uapi.NETLINK_ROUTE) as kernel:
        for name, address in unwanted.items():
            prefix = address.network.prefixlen
            body = _IFADDRMSG.pack(socket.AF_INET, prefix, 0, 0, indexes.get(name, 0))
            body += attribute(uapi.IFA_LOCAL, address.ip.packed)
            try:
                kernel.request(uapi.RTM_DELADDR, body)
            except NetlinkError as error:
                if error.errno not in _GONE:
                    raise

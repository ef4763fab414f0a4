"""Removes IPv4 addresses of interfaces."""

from __future__ import annotations

import errno
import socket
import struct
from collections.abc import Mapping
from ipaddress import IPv4Interface
from typing import Final

from egressd.netd.kernel import uapi
from egressd.netd.kernel.netlink import NetlinkError, NetlinkSocket, attribute

_IFADDRMSG: Final = struct.Struct("=BBBBI")
"""Family, prefix length, flags, scope, index (linux/if_addr.h)."""
_GONE: Final = (errno.EADDRNOTAVAIL, errno.ENODEV)


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

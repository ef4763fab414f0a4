"""The addresses that this machine has."""

from __future__ import annotations

import fcntl
import socket
import struct
from array import array
from ipaddress import IPv4Address
from typing import Final

_SIOCGIFCONF: Final = 0x8912
_INTERFACES_MAX: Final = 256
_IFREQ: Final = struct.Struct("@16sHH4s16x")
"""A name, and an address of it: family, port, IPv4 (netdevice(7), on a machine of 64 bits)."""


def own() -> list[IPv4Address]:
    """Each once, the loopback's too. By an ioctl, since the api's unit has no netlink sockets.

    Raises OSError.
    """
    found = array("B", bytes(_INTERFACES_MAX * _IFREQ.size))
    asked = array("B", struct.pack("@iP", len(found), found.buffer_info()[0]))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SIOCGIFCONF, asked)
    size: int = struct.unpack_from("@i", asked)[0]
    records = _IFREQ.iter_unpack(found.tobytes()[:size])
    return list(dict.fromkeys(IPv4Address(packed) for _, _, _, packed in records))

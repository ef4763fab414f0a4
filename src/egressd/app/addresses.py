"""The addresses that this machine has, and where its main routing table leads."""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
from array import array
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

_SIOCGIFCONF: Final = 0x8912
_INTERFACES_MAX: Final = 256
_IFREQ: Final = struct.Struct("@16sHH4s16x")
"""A name, and an address of it: family, port, IPv4 (netdevice(7), on a machine of 64 bits)."""
_ROUTES: Final = Path("/proc/thread-self/net/route")


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


def way_to(address: IPv4Address) -> str:
    """The interface of the route to `address`; empty where there is none but a default one.

    Reads the main table (proc(5): numbers as they lie in memory, in hexadecimal). Raises OSError.
    """
    wanted = int.from_bytes(address.packed, sys.byteorder)
    found = {0: ""}
    for line in _ROUTES.read_text().splitlines()[1:]:
        name, destination, _, _, _, _, _, mask = line.split()[:8]
        if wanted & int(mask, 16) == int(destination, 16):
            found.setdefault(int(mask, 16).bit_count(), name)
    return found[max(found)]

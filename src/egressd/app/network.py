"""What there is of this machine's network, as it is told without netlink.

systemd leaves the api's unit no sockets of that family (``RestrictAddressFamilies``).
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
from array import array
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final, TextIO

from egressd.model.errors import Failed

_SIOCGIFCONF: Final = 0x8912
_INTERFACES_MAX: Final = 256
_IFREQ: Final = struct.Struct("@16sHH4s16x")
"""A name, and an address of it: family, port, IPv4 (netdevice(7), on a machine of 64 bits)."""
_NET: Final = Path("/proc/thread-self/net")
_LISTEN: Final = "0A"
"""The state of a listener (the kernel's net/tcp_states.h)."""


def own_addresses() -> list[IPv4Address]:
    """Each once, the loopback's too. Raises OSError."""
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
    for line in (_NET / "route").read_text(errors="surrogateescape").splitlines()[1:]:
        name, destination, _, _, _, _, _, mask = line.split()[:8]
        if wanted & int(mask, 16) == int(destination, 16):
            found.setdefault(int(mask, 16).bit_count(), name)
    return found[max(found)]


def listening_ports() -> set[int]:
    """TCP ports that anybody listens on, at whatever address. Raises Failed.

    Costs by the listeners and not by the connections: the kernel tells of the former first
    (proc(5); tcp_seek_last_pos in its net/ipv4/tcp_ipv4.c).
    """
    ports: set[int] = set()
    try:
        for name in ("tcp", "tcp6"):
            with suppress(FileNotFoundError), (_NET / name).open() as table:
                ports.update(_listeners(table))
    except OSError as error:
        raise Failed("see which ports are taken", str(error)) from error
    return ports


def _listeners(table: TextIO) -> Iterator[int]:
    next(table)  # the columns' names
    for line in table:
        _, local, _, state, *_ = line.split()
        if state != _LISTEN:
            return
        yield int(local.rpartition(":")[2], 16)

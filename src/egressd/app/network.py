"""The facts of this machine's network, read without netlink.

systemd denies the api's unit sockets of that family (``RestrictAddressFamilies``).
"""

from __future__ import annotations

import fcntl
import socket
import struct
import sys
from array import array
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Interface, IPv4Network, IPv6Interface
from pathlib import Path
from typing import Final, TextIO

from egressd.model.errors import Failed
from egressd.model.facts import Facts, Interface, Route

_SIOCGIFCONF: Final = 0x8912  # linux/sockios.h
_ADDRESSES: Final = 256
"""Addresses: the first buffer has room for twice as many."""
_IFREQ: Final = struct.Struct("@16sHH4s16x")
"""A name and its address: family, port, IPv4 (netdevice(7), on a machine of 64 bits)."""
_SIOCGIFFLAGS: Final = 0x8913  # linux/sockios.h
_IFREQ_FLAGS: Final = struct.Struct("@16sH22x")
# linux/if.h
_IFF_LOOPBACK: Final = 0x8
_IFF_POINTOPOINT: Final = 0x10
_IFF_NOARP: Final = 0x80
_NET: Final = Path("/proc/thread-self/net")
_LISTEN: Final = "0A"
"""The state of a listener (the kernel's net/tcp_states.h)."""


def own_addresses() -> list[IPv4Address]:
    """Return each of this machine's IPv4 addresses once, the loopback's too. Raises OSError."""
    return list(dict.fromkeys(address for _, address in _addresses()))


def _addresses() -> Iterator[tuple[str, IPv4Address]]:
    """Yield each address after its label: the interface's name, or the name followed by ``:`` and
    more.
    """
    room = size = _ADDRESSES * _IFREQ.size
    while size == room:  # the kernel returns only as many as the buffer has room for
        room *= 2
        found = array("B", bytes(room))
        asked = array("B", struct.pack("@iP", room, found.buffer_info()[0]))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
            fcntl.ioctl(any_socket, _SIOCGIFCONF, asked)
        size = struct.unpack_from("@i", asked)[0]
    for label, _, _, packed in _IFREQ.iter_unpack(found.tobytes()[:size]):
        yield label.rstrip(b"\0").decode(errors="surrogateescape"), IPv4Address(packed)


def own_addresses6() -> Iterator[tuple[str, IPv6Interface]]:
    """Yield each IPv6 address after its interface (proc(5), if_inet6). Raises OSError."""
    with suppress(FileNotFoundError):  # the kernel has no IPv6
        for line in (_NET / "if_inet6").read_text(errors="surrogateescape").splitlines():
            address, _, prefix, _, _, name = line.split(maxsplit=5)
            yield name.strip(), IPv6Interface((bytes.fromhex(address), int(prefix, 16)))


def interface_names() -> set[str]:
    """Return the names of all interfaces, with an address or without (proc(5)). Raises OSError."""
    table = (_NET / "dev").read_text(errors="surrogateescape").splitlines()[2:]
    return {row.partition(":")[0].strip() for row in table}


def interface_to(address: IPv4Address) -> str:
    """Return the interface of the route to `address`; empty if only a default route leads there.

    Raises OSError.
    """
    found = {0: ""}
    for route in _routes():
        if address in route.destination:
            found.setdefault(route.destination.prefixlen, route.interface)
    return found[max(found)]


def facts() -> Facts:
    """Return the interfaces that have an IPv4 address, and the main table, as far as roles of
    interfaces depend on them. Raises OSError.

    Addresses are given as /32: the networks that they are in are among the routes.
    """
    addresses: dict[str, list[IPv4Interface]] = {}
    for label, address in _addresses():
        name = label.partition(":")[0]
        addresses.setdefault(name, []).append(IPv4Interface(address))
    interfaces = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for name, own in addresses.items():
            asked = _IFREQ_FLAGS.pack(name.encode(errors="surrogateescape"), 0)
            _, flags = _IFREQ_FLAGS.unpack(fcntl.ioctl(any_socket, _SIOCGIFFLAGS, asked))
            interfaces[name] = Interface(
                name=name,
                index=0,
                is_up=True,
                is_loopback=bool(flags & _IFF_LOOPBACK),
                is_point_to_point=bool(flags & (_IFF_POINTOPOINT | _IFF_NOARP)),
                addresses=tuple(own),
            )
    return Facts(interfaces=interfaces, routes=tuple(_routes()))


def _routes() -> Iterator[Route]:
    """Yield the routes of the main table (proc(5): numbers in hexadecimal, in the byte order of
    memory).
    """
    for line in (_NET / "route").read_text(errors="surrogateescape").splitlines()[1:]:
        name, destination, gateway, _, _, _, metric, mask = line.split()[:8]
        prefix = int(mask, 16).bit_count()
        yield Route(
            destination=IPv4Network((_address(destination), prefix)),
            interface=name,
            gateway=_address(gateway) if int(gateway, 16) else None,
            metric=int(metric),
        )


def _address(number: str) -> IPv4Address:
    return IPv4Address(int(number, 16).to_bytes(4, sys.byteorder))


def listening_ports() -> set[int]:
    """Return the TCP ports that any process listens on, at any address. Raises Failed.

    The cost grows with the listeners and not with the connections: the kernel lists the listeners
    first (proc(5); tcp_seek_last_pos in its net/ipv4/tcp_ipv4.c).
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

"""Help for clients whose connections a box that becomes active cannot carry on.

A connection through a node or a proxy service ends in the engine of the box that was active. The
new one answers the client's next packet with a reset. A client that only receives sends none, and
would wait for ever: so each gets an acknowledgement in the far end's name that acknowledges nothing
it has sent, which it must answer (RFC 9293, 3.10.7.4).
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final

from egressd.netd.kernel.checksum import internet_checksum
from egressd.netd.kernel.conntrack import Opened, engine_connections

_IP: Final = struct.Struct(">BBHHHBBH4s4s")
"""An IPv4 header without options (RFC 791, 3.1)."""
_TCP: Final = struct.Struct(">HHIIBBHHH")
"""A TCP header without options (RFC 9293, 3.1)."""
_PSEUDO: Final = struct.Struct(">4s4sBBH")
"""The addresses and lengths that TCP's checksum covers, too."""
_ACK: Final = 0x10
"""TCP's flag of that name."""
_VERSION_AND_LENGTH: Final = 0x45
"""Version 4, and a header of five words."""
_TTL: Final = 64
"""Routers that a packet may pass."""
_CHECKSUM: Final = slice(16, 18)
"""The place of TCP's checksum in its header."""


def poke_clients_of_nodes() -> int:
    """Have each client of the engine notice that its TCP connections are gone; return their number.

    Blocks for as long as it takes to list all connections. Raises OSError.
    """
    count = 0
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sending:
        for packet, client in pokes(engine_connections()):
            with suppress(OSError):  # one client's neighbour may be unreachable
                sending.sendto(packet, (client, 0))
                count += 1
    return count


def pokes(connections: Iterable[Opened]) -> Iterator[tuple[bytes, str]]:
    """Yield an IP packet for each connection, and the address of its client."""
    for each in connections:
        yield _acknowledgement(each), socket.inet_ntoa(each.client)


def _acknowledgement(connection: Opened) -> bytes:
    """Return a segment from the far end to the client, of the connection but out of its window."""
    ends = connection.far, connection.client
    segment = _TCP.pack(
        connection.far_port, connection.client_port, 0, 0, _TCP.size // 4 << 4, _ACK, 0, 0, 0
    )
    pseudo = _PSEUDO.pack(*ends, 0, socket.IPPROTO_TCP, len(segment))
    checksum = internet_checksum(pseudo + segment).to_bytes(2, "big")
    segment = segment[: _CHECKSUM.start] + checksum + segment[_CHECKSUM.stop :]
    # The kernel fills in length, identification and checksum (raw(7)).
    header = _IP.pack(
        _VERSION_AND_LENGTH, 0, _IP.size + len(segment), 0, 0, _TTL, socket.IPPROTO_TCP, 0, *ends
    )
    return header + segment

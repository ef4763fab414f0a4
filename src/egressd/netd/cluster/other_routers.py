"""Routers of others on the LAN that send VRRP adverts with the pair's number, or for its shared
address (RFC 5798).

They have no part in the pair: its boxes send adverts to each other alone, and keepalived drops
those of other sources (``vrrp_check_unicast_src``). But two routers with one address divide the
clients between them, and a number is meant for one group of routers on a LAN (5.2.3), so an
operator has to know.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv4Address
from typing import Final, NamedTuple

from egressd.model.pair import Pair
from egressd.model.wording import Sentence, say

_PROTOCOL: Final = 112
"""VRRP (RFC 5798, 5.1.1.4)."""
_GROUP: Final = IPv4Address("224.0.0.18")
"""The address that routers send adverts to, unless they know each other (5.1.1.2)."""
_TTL: Final = 255
"""An advert with another time to live comes from beyond the LAN (5.1.1.3)."""
_ADVERT: Final = 1
"""The type of the only kind of packet (5.2.2)."""
_MREQN: Final = struct.Struct("@4s4si")
"""``struct ip_mreqn`` (ip(7)): group, local address, index of the interface."""
_PACKET_MAX: Final = 2048
"""Bytes of an advert that are read: one with 255 addresses has 1,048."""
_READ_MAX: Final = 64
"""Adverts that are read at once."""
_RECEIVE_BUFFER: Final = 1 << 16
"""Bytes that may wait in the kernel: a flood loses what is beyond."""
_ROUTERS_MAX: Final = 8
"""Routers that are kept, so that forged sources take no memory."""
_SILENT_S: Final = 60.0
"""Seconds after a router's last advert in which it is reported still. The longest interval of
VRRPv3 is 41 s."""


class Advert(NamedTuple):
    """An advert of another router."""

    source: IPv4Address
    router_id: int
    addresses: frozenset[IPv4Address]


def read(packet: bytes) -> Advert | None:
    """Return the advert in an IPv4 packet; None if it is none, or comes from beyond the LAN."""
    header = 4 * (packet[0] & 0x0F)
    body = packet[header:]
    if packet[8] != _TTL or len(body) < 8 or body[0] & 0x0F != _ADVERT:
        return None
    # Versions 2 and 3 have the addresses at the same place (RFC 3768, 5.3; RFC 5798, 5.2).
    whole = range(8, min(8 + 4 * body[3], len(body) - 3), 4)
    addresses = frozenset(IPv4Address(body[at : at + 4]) for at in whole)
    return Advert(IPv4Address(packet[12:16]), body[1], addresses)


class OtherRouters:
    """Hears the adverts of other routers on the pair's LAN. `look` is to be called all the time."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self._boxes = {pair.lan.own, pair.lan.peer}
        self._shared = pair.shared[pair.lan.interface].ip
        self._socket: socket.socket | None = None
        self._index = 0
        """The index of the interface that the socket is bound to."""
        self._heard: dict[IPv4Address, tuple[float, tuple[Sentence, ...]]] = {}
        """Source -> the time, of the monotonic clock, of its last advert, and what is wrong."""

    def look(self, now: float) -> None:
        """Read what has come in since; `now` is the monotonic clock's time, in seconds. Raises
        OSError if the LAN cannot be listened to.
        """
        for source in [each for each, (at, _) in self._heard.items() if now - at > _SILENT_S]:
            del self._heard[source]
        listening = self._bound()
        if listening is None:
            return
        with suppress(BlockingIOError):
            for _ in range(_READ_MAX):
                if advert := read(listening.recv(_PACKET_MAX)):
                    self._take(advert, now)

    def problems(self) -> tuple[Sentence, ...]:
        """Return a sentence about each router with this pair's number or shared address."""
        return tuple(problem for _, problems in self._heard.values() for problem in problems)

    def close(self) -> None:
        """Stop listening. It may be called again."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _take(self, advert: Advert, now: float) -> None:
        problems = tuple(self._problems_of(advert))
        if problems and (advert.source in self._heard or len(self._heard) < _ROUTERS_MAX):
            self._heard[advert.source] = now, problems

    def _problems_of(self, advert: Advert) -> Iterator[Sentence]:
        if advert.source in self._boxes:
            return
        address, name = str(advert.source), self._pair.lan.interface
        if advert.router_id == self._pair.router_id:
            yield say("pair-number-taken", address=address, name=name, number=advert.router_id)
        if self._shared in advert.addresses:
            yield say("pair-address-taken", address=address, name=name, shared=str(self._shared))

    def _bound(self) -> socket.socket | None:
        """Return a socket on the LAN's interface, which may have come back as another one; None if
        there is none. Raises OSError.
        """
        try:
            index = socket.if_nametoindex(self._pair.lan.interface)
        except OSError:
            self.close()
            return None
        if self._socket is None or index != self._index:
            self.close()
            self._socket = _listening(self._pair.lan.interface, index)
            self._index = index
        return self._socket


def _listening(interface: str, index: int) -> socket.socket:
    """Return a socket for the adverts that come in by an interface. Raises OSError."""
    made = socket.socket(socket.AF_INET, socket.SOCK_RAW, _PROTOCOL)
    try:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        membership = _MREQN.pack(_GROUP.packed, bytes(4), index)
        made.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    except OSError:
        made.close()
        raise
    return made

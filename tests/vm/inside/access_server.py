"""An L2TP access server that is odd on demand (RFC 2661).

Sessions are `ppp_peer.PppPeer`'s. What is not about their habits, a scenario does from outside: by
nftables in the server's namespace, or by calling `stop`, `start` and `end_sessions`.
"""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from tests.vm.inside import netns, network
from tests.vm.inside.ppp_peer import Habits, PppPeer

NAME: Final = "odd"
ADDRESS: Final = "198.51.103.10"
POOL: Final = "192.168.103"
L2TP_PORT: Final = 1701

SCCRQ, SCCRP, SCCCN, STOP, HELLO, ICRQ, ICRP, ICCN, CDN = 1, 2, 3, 4, 6, 10, 11, 12, 14
_TYPE, _RESULT, _VERSION, _FRAMING, _HOST, _TUNNEL, _SESSION = 0, 1, 2, 3, 7, 9, 14
_CHALLENGE = 11
_IS_CONTROL, _HAS_LENGTH, _HAS_SEQUENCE, _HAS_OFFSET = 0x8000, 0x4000, 0x0800, 0x0200
_HEAD: Final = struct.Struct("!HHHHHH")

Place = tuple[str, int]


class Tunnel:
    """A control connection with its one session."""

    def __init__(self, number: int, place: Place, habits: Habits) -> None:
        self.number = number
        self.place = place
        self.habits = habits
        """The server's, when the caller asked for it."""
        self.theirs = 0
        """The number that the caller gave its end of the tunnel."""
        self.session = 0
        """The number that the caller gave its end of the session."""
        self.sent = 0
        self.taken = 0
        """Control messages that were sent, and that came (RFC 2661, 5.8)."""
        self.peer: PppPeer
        self.heard = time.monotonic()


class AccessServer:
    """A server with a namespace of its own. `habits` may be changed at any time."""

    def __init__(self, accounts: Mapping[str, str]) -> None:
        self.habits = Habits()
        self.calls = 0
        """Sessions that callers asked for."""
        self.turned_away = 0
        """Calls that were refused."""
        self._accounts = accounts
        self._tunnels: dict[int, Tunnel] = {}
        self._last = 0

    def build(self) -> None:
        """Make the server's place in the network."""
        network.attach(NAME, ADDRESS)

    def start(self) -> None:
        """Answer from now on; sessions of an earlier start are unknown."""
        self._tunnels = {}
        self._socket = netns.udp(NAME, ADDRESS, L2TP_PORT)
        asyncio.get_running_loop().add_reader(self._socket, self._hear)

    def stop(self) -> None:
        """Answer nothing. The port is closed, and the kernel says so to callers."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()

    def reset(self) -> None:
        """Have no oddities, and know of no session any more."""
        self.habits = Habits()
        self._tunnels = {}

    @property
    def tunnels(self) -> int:
        """Number of tunnels that callers have asked for."""
        return self._last

    @property
    def peers(self) -> list[PppPeer]:
        """The sessions whose end the server has not noticed, the latest last."""
        return [tunnel.peer for tunnel in self._tunnels.values() if tunnel.session]

    # --- Accounts. --------------------------------------------------------------------------

    def _address(self, name: str) -> str:
        return f"{POOL}.{list(self._accounts).index(name) + 10}"

    def _objection(self, name: str) -> bytes:
        hold_s = self.habits.hold_s
        if hold_s is None:
            return self.habits.refusal
        for tunnel in self._tunnels.values():
            is_held = time.monotonic() - tunnel.heard < hold_s
            if tunnel.session and tunnel.peer.name == name and is_held:
                return self.habits.in_use
        return b""

    # --- Packets. ---------------------------------------------------------------------------

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            while True:
                try:
                    data, place = self._socket.recvfrom(4096)
                except ConnectionError:
                    continue  # an ICMP error: a caller has gone
                self._take(data, place)

    def _take(self, data: bytes, place: Place) -> None:
        flags = int.from_bytes(data[:2], "big")
        if flags & _IS_CONTROL:
            self._control(data, place)
            return
        start = 4 if flags & _HAS_LENGTH else 2
        tunnel = self._tunnels.get(int.from_bytes(data[start : start + 2], "big"))
        start += 4 + (4 if flags & _HAS_SEQUENCE else 0)
        if flags & _HAS_OFFSET:
            start += 2 + int.from_bytes(data[start : start + 2], "big")
        if tunnel is not None and tunnel.session:
            tunnel.heard = time.monotonic()
            tunnel.peer.receive(data[start:])

    def _control(self, data: bytes, place: Place) -> None:
        _, length, number, _, ns, _ = _HEAD.unpack_from(data)
        told = _avps(data[_HEAD.size : length])
        kind = int.from_bytes(told.get(_TYPE, b""), "big")
        if kind == SCCRQ:
            self._last += 1
            tunnel = self._tunnels[self._last] = Tunnel(self._last, place, self.habits)
            tunnel.theirs = int.from_bytes(told[_TUNNEL], "big")
        elif (found := self._tunnels.get(number)) is not None:
            tunnel = found
        else:
            return
        if not kind:
            return  # a mere acknowledgement
        if ns != tunnel.taken:
            self._tell(tunnel)  # it came before
            return
        tunnel.taken += 1
        match kind:
            case 1 if tunnel.habits.stalls == "tunnel":
                self._tell(tunnel)
            case 1 if tunnel.habits.tunnel_refusal is not None:
                own, why = struct.pack("!H", tunnel.number), _why(tunnel.habits.tunnel_refusal)
                self._tell(tunnel, STOP, {_TUNNEL: own, _RESULT: why})
            case 1:
                values = {_VERSION: b"\1\0", _FRAMING: b"\0\0\0\3", _HOST: b"odd"}
                values |= {_CHALLENGE: b"x" * 16} if tunnel.habits.tunnel_secret else {}
                self._tell(tunnel, SCCRP, values | {_TUNNEL: struct.pack("!H", tunnel.number)})
            case 10 if tunnel.habits.stalls == "call":
                self._tell(tunnel)
            case 10 if tunnel.habits.call_refusal is not None:
                tunnel.session = int.from_bytes(told[_SESSION], "big")
                own = struct.pack("!H", tunnel.number)
                self.turned_away += 1
                self._tell(tunnel, CDN, {_RESULT: _why(tunnel.habits.call_refusal), _SESSION: own})
                tunnel.session = 0
            case 10:
                self.calls += 1
                tunnel.session = int.from_bytes(told[_SESSION], "big")
                tunnel.peer = PppPeer(
                    tunnel.habits,
                    self._address,
                    lambda name: self._accounts.get(name, ""),
                    self._objection,
                    lambda frame: self._send_frame(tunnel, frame),
                )
                self._tell(tunnel, ICRP, {_SESSION: struct.pack("!H", tunnel.number)})
            case 12:
                self._tell(tunnel)
                tunnel.peer.begin()
            case 4 | 14:
                self._tell(tunnel)
                tunnel.session = 0
            case _:
                self._tell(tunnel)

    def _tell(self, tunnel: Tunnel, kind: int = 0, values: Mapping[int, bytes] = {}) -> None:
        """Send a control message, or only acknowledge when there is no `kind`."""
        avps = {_TYPE: struct.pack("!H", kind), **values} if kind else {}
        body = b"".join(struct.pack("!HHH", 0x8000 | len(v) + 6, 0, k) + v for k, v in avps.items())
        session = tunnel.session if kind in (ICRP, CDN) else 0
        head = _HEAD.pack(0xC802, _HEAD.size + len(body), tunnel.theirs, session,
                          tunnel.sent, tunnel.taken)  # fmt: skip
        tunnel.sent += bool(kind)
        self._socket.sendto(head + body, tunnel.place)

    def _send_frame(self, tunnel: Tunnel, frame: bytes) -> None:
        head = struct.pack("!HHH", 2, tunnel.theirs, tunnel.session)
        with suppress(OSError):
            self._socket.sendto(head + frame, tunnel.place)


def _why(refusal: tuple[int, int, bytes]) -> bytes:
    """Return the value of a Result Code AVP (RFC 2661, 4.4.2)."""
    result, error, words = refusal
    return struct.pack("!HH", result, error) + words


def _avps(data: bytes) -> dict[int, bytes]:
    """Return the values of a control message by their type (RFC 2661, 4.1)."""
    found = {}
    while len(data) >= 6:
        length = int.from_bytes(data[:2], "big") & 0x3FF
        found[int.from_bytes(data[4:6], "big")] = data[6:length]
        data = data[max(length, 6) :]
    return found

"""The far end of a PPP session that is odd on demand (RFC 1661, 1332, 1334, 1994).

It opens LCP, has the caller prove who it is, and hands out an address. Instead of forwarding
packets it answers those that are meant for `Web`, as that would. It keeps no time of its own: what
it asked for it asks for again when the caller does.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

from tests.vm.inside.network import WEB
from tests.vm.inside.probes import PORT

IP, IPCP, LCP, PAP, CHAP, EAP = 0x0021, 0x8021, 0xC021, 0xC023, 0xC223, 0xC227
REQUEST, ACK, NAK, REJECT, TERMINATE, TERMINATED = 1, 2, 3, 4, 5, 6
ECHO_REQUEST, ECHO_REPLY = 9, 10
_MRU, _ACCM, _PROOF, _MAGIC = 1, 2, 3, 5
_ADDRESS, _DNS = 3, (129, 131)

_PROOFS: Final = {"pap": struct.pack("!H", PAP), "chap": struct.pack("!HB", CHAP, 5),
                  "eap": struct.pack("!H", EAP)}  # fmt: skip
_INSISTS: Final = 4
"""Number of requests for a kind of proof that the caller does not want to give."""
_PAUSE_S: Final = 0.02
"""Seconds until it refuses again what it refuses for ever."""


@dataclass
class Habits:
    """The behaviour of a server. The defaults are those of an ordinary one."""

    proof: str = "chap"
    """Kind of proof that callers give: ``pap``, ``chap`` (by MD5) or ``eap``."""
    answers_echoes: bool = True
    farewell: bytes = b""
    """Words with which it ends a session."""
    own_address: str = "192.168.103.1"
    """Its end's of every session."""
    tunnel_secret: bool = False
    """It has callers prove that they know a secret of the tunnel's (RFC 2661, 5.1.1)."""
    call_refusal: tuple[int, int, bytes] | None = None
    """The result code, error code and words by which it takes no calls (RFC 2661, 4.4.2)."""
    tunnel_refusal: tuple[int, int, bytes] | None = None
    """The same, by which it takes no tunnel."""
    reflects: bool = False
    """It sends back all frames of a session."""
    hold_s: float | None = None
    """Seconds for which it holds a session that fell silent and refuses another of its account.
    None: an account may have any number of sessions."""
    in_use: bytes = b"You are already logged in"
    """Words for a caller whose account is in use."""
    stalls: str = ""
    """At this it goes on answering, and nothing ever comes of it: ``tunnel`` and ``call`` (of
    L2TP), ``lcp``, ``login`` or ``ipcp``."""
    refusal: bytes = b""
    """It refuses all callers with these words."""
    ends_at_once: bool = False
    """It ends each session as soon as that is there."""
    ends_when_in_use: bool = False
    """It ends the session of a caller whose account is in use once the login was right, rather than
    refuse the login."""


class PppPeer:
    """One session.

    `send` takes a frame to the caller; `objection(name)` returns b"" or the words of a refusal;
    `password(name)` is that of an account.
    """

    def __init__(
        self,
        habits: Habits,
        address: Callable[[str], str],
        password: Callable[[str], str],
        objection: Callable[[str], bytes],
        send: Callable[[bytes], None],
    ) -> None:
        self.name = ""
        """Name of the account, once the login was right."""
        self.echoes = 0
        """Echo requests that came."""
        self._habits = habits
        self._address_of = address
        self._password = password
        self._objection = objection
        self._send_frame = send
        self._number = 0
        self._asked = 0
        self._agreed: set[tuple[int, str]] = set()
        self._challenge = os.urandom(16)
        self._magic = os.urandom(4)

    def begin(self) -> None:
        """Open LCP."""
        self._request_lcp()

    def end(self, words: bytes = b"") -> None:
        """Ask the caller to end the session."""
        self._send(LCP, TERMINATE, words or self._habits.farewell)

    def receive(self, frame: bytes) -> None:
        """Take a frame from the caller."""
        if self._habits.reflects:
            self._send_frame(frame)
            return
        frame = frame.removeprefix(b"\xff\x03")
        protocol, packet = int.from_bytes(frame[:2], "big"), frame[2:]
        if protocol == IP:
            if (answer := _answer(packet)) is not None and self.name:
                self._send_frame(struct.pack("!BBH", 0xFF, 3, IP) + answer)
            return
        code, number, length = struct.unpack_from("!BBH", packet)
        data = packet[4:length]
        handler = {LCP: self._lcp, IPCP: self._ipcp, PAP: self._pap, CHAP: self._chap}
        if protocol in handler:
            handler[protocol](code, number, data)

    def _send(self, protocol: int, code: int, data: bytes, number: int | None = None) -> None:
        if number is None:
            self._number = number = (self._number + 1) % 256
        head = struct.pack("!BBHBBH", 0xFF, 3, protocol, code, number, len(data) + 4)
        self._send_frame(head + data)

    def _refuse(self, protocol: int, wanted: bytes, number: int) -> None:
        """Ask for something else, a moment later: an emulated machine would do nothing besides."""
        asyncio.get_running_loop().call_later(_PAUSE_S, self._send, protocol, NAK, wanted, number)

    # --- LCP. -------------------------------------------------------------------------------

    def _request_lcp(self) -> None:
        wanted = {_MRU: b"\x05\x78", _PROOF: _PROOFS[self._habits.proof], _MAGIC: self._magic}
        self._send(LCP, REQUEST, _encoded(wanted))

    def _lcp(self, code: int, number: int, data: bytes) -> None:
        match code:
            case 1:
                if (LCP, "ours") not in self._agreed:
                    self._request_lcp()  # ours may have come before anybody was there to take it
                if self._habits.stalls == "lcp":
                    self._refuse(LCP, _encoded({_MRU: os.urandom(2)}), number)
                elif self._take_request(LCP, number, data, {_MRU, _ACCM, _MAGIC}):
                    self._agree(LCP, "theirs")
            case 2:
                self._agree(LCP, "ours")
            case 3 | 4:
                self._asked += 1
                if self._asked < _INSISTS:
                    self._request_lcp()
                else:
                    self.end(b"peer refused to authenticate")
            case 5:
                self._send(LCP, TERMINATED, b"", number)
            case 9:
                self.echoes += 1
                if self._habits.answers_echoes:
                    self._send(LCP, ECHO_REPLY, self._magic + data[4:], number)

    def _take_request(self, protocol: int, number: int, data: bytes, known: set[int]) -> bool:
        """Take what the caller asks for, or reject what is not known here."""
        options = dict(_options(data))
        if unknown := {kind: value for kind, value in options.items() if kind not in known}:
            self._send(protocol, REJECT, _encoded(unknown), number)
            return False
        self._send(protocol, ACK, data, number)
        return True

    def _agree(self, protocol: int, whose: str) -> None:
        self._agreed.add((protocol, whose))
        is_open = {(LCP, "ours"), (LCP, "theirs")} <= self._agreed
        if protocol == LCP and is_open and self._habits.proof == "chap":
            self._send(CHAP, 1, bytes((len(self._challenge),)) + self._challenge + b"odd")

    # --- Who it is. -------------------------------------------------------------------------

    def _pap(self, code: int, number: int, data: bytes) -> None:
        name, password = data[1 : 1 + data[0]], data[2 + data[0] :]
        is_right = self._password(name.decode()).encode() == password
        self._judge(PAP, (2, 3), number, name.decode(), is_right=is_right)

    def _chap(self, code: int, number: int, data: bytes) -> None:
        proof, name = data[1 : 1 + data[0]], data[1 + data[0] :].decode()
        secret = bytes((number,)) + self._password(name).encode() + self._challenge
        expected = hashlib.md5(secret, usedforsecurity=False).digest()
        self._judge(CHAP, (3, 4), number, name, is_right=proof == expected)

    def _judge(
        self, protocol: int, codes: tuple[int, int], number: int, name: str, *, is_right: bool
    ) -> None:
        if self.name or self._habits.stalls == "login":
            return  # the caller proved it twice
        words = self._objection(name) if is_right else b"Access denied"
        is_let_in = is_right and (not words or self._habits.ends_when_in_use)
        told = b"Welcome" if is_let_in else words
        told = bytes((len(told),)) + told if protocol == PAP else told
        self._send(protocol, codes[0] if is_let_in else codes[1], told, number)
        if words:
            self.end(words)
            return
        self.name = name
        self._send(IPCP, REQUEST, _encoded({_ADDRESS: _packed(self._habits.own_address)}))

    # --- IPCP. ------------------------------------------------------------------------------

    def _ipcp(self, code: int, number: int, data: bytes) -> None:
        if code != REQUEST or not self.name:
            return
        options = dict(_options(data))
        if self._habits.stalls == "ipcp":
            self._refuse(IPCP, _encoded({_ADDRESS: os.urandom(4)}), number)
            return
        right = {_ADDRESS: _packed(self._address_of(self.name))}
        wrong = {kind: right[kind] for kind in options if right.get(kind, b"") != options[kind]
                 and kind in right}  # fmt: skip
        if any(kind not in right for kind in options):
            self._take_request(IPCP, number, data, set(right))
        elif wrong:
            self._send(IPCP, NAK, _encoded(wrong), number)
        else:
            self._send(IPCP, ACK, data, number)
            if self._habits.ends_at_once:
                self.end()


def _encoded(options: dict[int, bytes]) -> bytes:
    return b"".join(bytes((kind, len(v) + 2)) + v for kind, v in options.items())


def _options(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 2:
        yield data[0], data[2 : data[1]]
        data = data[max(data[1], 2) :]


def _packed(address: str) -> bytes:
    return IPv4Address(address).packed


def _answer(packet: bytes) -> bytes | None:
    """Return what the web server would answer to an IPv4 packet; None to one not for it."""
    start = (packet[0] & 15) * 4
    source, destination = packet[12:16], packet[16:20]
    if packet[9] != 17 or destination != _packed(WEB):
        return None
    client, port = struct.unpack_from("!HH", packet, start)
    if port != PORT:
        return None
    total = int.from_bytes(packet[2:4], "big")
    data = packet[start + 8 : total] + b" " + str(IPv4Address(source)).encode()
    # A checksum of 0 says that there is none (RFC 768).
    datagram = struct.pack("!HHHH", port, client, len(data) + 8, 0) + data
    head = struct.pack("!BBHHHBBH", 0x45, 0, len(datagram) + 20, 0, 0, 64, 17, 0)
    head += destination + source
    checksum = struct.pack("!H", _checksum(head))
    return head[:10] + checksum + head[12:] + datagram


def _checksum(data: bytes) -> int:
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF

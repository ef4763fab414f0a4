"""Signs of life from the server of a line that is up.

pppd asks for an LCP echo (RFC 1661, 5.8) after every second in which no packet came, and logs
each answer. It is not left to judge: pppd 2.4.9 counts echoes without an answer over all traffic
that comes between them, and there are servers that answer none. Such a server is only missed when
something was sent to it and nothing came back, nor the answer to a ping.
"""

from __future__ import annotations

import re
import socket
import struct
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final, NamedTuple

LOOK_S: Final = 0.5
"""Seconds between two looks at a line that is up. A sign may be noted so much late, and its lack
again: a silent server is missed within seven seconds."""
SILENT_S: Final = 6.0
"""After so many seconds without any sign a server is missed: six echoes went unanswered. Where one
packet in seven gets lost, that happens by chance once in 50 minutes. A server that has begun anew
knows no session, and is dialled again within ten seconds so."""

_DOUBT_S: Final = 1.0
"""So many seconds after a packet that had no answer a server that answers no echoes is pinged, at
each look."""
_ASKED_S: Final = 4.0
"""So long at least it has for an answer to that. Where a packet is sent every five seconds, it is
missed within ten."""

_NOISE_MAX: Final = 1 << 16
"""Bytes of echoes that may stand in pppd's log."""
_ECHO: Final = re.compile(rb"(?:sent|rcvd) \[LCP Echo")
_ANSWER: Final = re.compile(rb"^rcvd \[LCP EchoRep", re.MULTILINE)
_COUNTERS: Final = Path("/sys/class/net")


class Packets(NamedTuple):
    """Counts of the packets that an interface has carried, without LCP."""

    received: int
    sent: int


def packets(interface: str) -> Packets:
    """The counters of an interface; zeros when it has gone."""
    folder = _COUNTERS / interface / "statistics"
    with suppress(OSError, ValueError):
        return Packets(*(int((folder / f"{way}_packets").read_text()) for way in ("rx", "tx")))
    return Packets(0, 0)


def ping(interface: str, address: IPv4Address) -> None:
    """Send an ICMP echo by an interface. The answer is only seen in its counters."""
    head = struct.pack("!BBHHH", 8, 0, 0, 0, 1)  # RFC 792
    checksum = ~sum(struct.unpack("!4H", head)) & 0xFFFF
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        opened.sendto(head[:2] + struct.pack("!H", checksum) + head[4:], (str(address), 0))


class Pulse:
    """The signs of life in one session: another one's server may be another."""

    def __init__(self, now: float) -> None:
        self._answers_echoes = False
        """True once the server has answered an echo."""
        self._sign = now
        self._received = -1
        self._sent = -1
        """Packets that had been sent when there was a sign."""
        self._asked: float | None = None
        """When a packet had been sent since then; None if there was none."""

    def look(self, now: float, counted: Packets, said: bytes) -> None:
        """Note the interface's counters, and what pppd has logged since the last look."""
        is_answer = _ANSWER.search(said) is not None
        self._answers_echoes = self._answers_echoes or is_answer
        if is_answer or counted.received != self._received:
            self._sign, self._sent, self._asked = now, counted.sent, None
        elif self._asked is None and counted.sent != self._sent:
            self._asked = now
        self._received = counted.received

    def is_doubtful(self, now: float) -> bool:
        """True if a ping may show that the server is alive."""
        return not self._answers_echoes and self._has_waited(now, _DOUBT_S)

    def is_silent(self, now: float) -> bool:
        """True if the server was silent for too long."""
        return self.silence_s(now) >= SILENT_S

    def silence_s(self, now: float) -> float:
        """For how long nothing has come; 0 if nothing was due."""
        is_due = self._answers_echoes or self._has_waited(now, _ASKED_S)
        return now - self._sign if is_due else 0.0

    def _has_waited(self, now: float, seconds: float) -> bool:
        """True if a packet has had no answer for so long."""
        return self._asked is not None and now - self._asked >= seconds


class EchoLog:
    """pppd's log while the line is up: read as it grows, and freed of old echoes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._kept = 0
        """Bytes up to the last line that is no echo's."""

    def news(self) -> bytes:
        """Return the lines logged since the last call, or all of them the first time."""
        try:
            with self._path.open("r+b") as file:
                size = file.seek(0, 2)
                if size < self._read:  # it was emptied
                    self._read = self._kept = 0
                file.seek(self._read)
                said = file.read(size - self._read)
                said = said[: said.rfind(b"\n") + 1]
                self._note(said)
                if self._read - self._kept > _NOISE_MAX:
                    # pppd appends; what it wrote in this moment is an echo more.
                    file.truncate(self._kept)
                    self._read = self._kept
        except OSError:
            return b""
        return said

    def _note(self, said: bytes) -> None:
        for line in said.splitlines(keepends=True):
            self._read += len(line)
            if not _ECHO.match(line):
                self._kept = self._read

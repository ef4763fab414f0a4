"""Signs of life from the server of a line that is up.

pppd sends an LCP echo request (RFC 1661, 5.8) after every second in which no packet came, and logs
each answer. netd, not pppd, decides that a server is silent: pppd 2.4.9 counts echo requests
without an answer even if traffic comes between them, and some servers answer none. Such a server
counts as silent only if a packet to it, and a ping, had no answer.
"""

from __future__ import annotations

import re
import socket
from contextlib import suppress
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final, NamedTuple

from egressd.netd.kernel import icmp

LOOK_S: Final = 0.5
"""Seconds between two checks of a line that is up. A sign of life may be noted so much late, and so
may its absence: a silent server is detected within seven seconds."""
SILENT_S: Final = 6.0
"""Seconds without a sign of life after which a server counts as silent: six echo requests had no
answer. If one packet in seven is lost, that happens by chance once in 50 minutes. A restarted
server knows no session; its lines are dialled again within ten seconds.
"""

_DOUBT_S: Final = 1.0
"""Seconds after a packet without an answer from which on a server that answers no echo requests is
pinged at each check."""
_ASKED_S: Final = 4.0
"""Seconds that such a server has at least for an answer. If a packet is sent every five seconds,
its silence is detected within ten.
"""

_NOISE_MAX: Final = 1 << 16
"""Bytes of echoes that pppd's log may have."""
_ECHO: Final = re.compile(rb"(?:sent|rcvd) \[LCP Echo")
_ANSWER: Final = re.compile(rb"^rcvd \[LCP EchoRep", re.MULTILINE)
_COUNTERS: Final = Path("/sys/class/net")


class Packets(NamedTuple):
    """Counts of the packets that an interface has carried, without LCP."""

    received: int
    sent: int


def packets(interface: str) -> Packets:
    """Return the counters of an interface; zeros if it is gone."""
    folder = _COUNTERS / interface / "statistics"
    with suppress(OSError, ValueError):
        return Packets(*(int((folder / f"{way}_packets").read_text()) for way in ("rx", "tx")))
    return Packets(0, 0)


def ping(interface: str, address: IPv4Address) -> None:
    """Send an ICMP echo request by an interface. Only its counters show the answer."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_RAW, 1) as opened:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, interface.encode())
        opened.sendto(icmp.echo_request(), (str(address), 0))


class SignsOfLife:
    """The signs of life in one session. The next session's server may be another one."""

    def __init__(self, now: float) -> None:
        self._answers_echoes = False
        """True once the server has answered an echo request."""
        self._sign = now
        self._received = -1
        self._sent = -1
        """The number of packets sent at the last sign of life."""
        self._asked: float | None = None
        """The time at which a packet sent since then was noted; None if there was none."""

    def look(self, now: float, counted: Packets, said: bytes) -> None:
        """Note the interface's counters, and the text that pppd has logged since the last check."""
        is_answer = _ANSWER.search(said) is not None
        self._answers_echoes = self._answers_echoes or is_answer
        if is_answer or counted.received != self._received:
            self._sign, self._sent, self._asked = now, counted.sent, None
        elif self._asked is None and counted.sent != self._sent:
            self._asked = now
        self._received = counted.received

    def is_doubtful(self, now: float) -> bool:
        """Return True if a ping may show that the server is alive."""
        return not self._answers_echoes and self._has_waited(now, _DOUBT_S)

    def is_silent(self, now: float) -> bool:
        """Return True if the server was silent for too long."""
        return self.silence_s(now) >= SILENT_S

    def silence_s(self, now: float) -> float:
        """Return the seconds without a sign of life; 0 if no answer was due."""
        is_due = self._answers_echoes or self._has_waited(now, _ASKED_S)
        return now - self._sign if is_due else 0.0

    def _has_waited(self, now: float, seconds: float) -> bool:
        """Return True if a packet has had no answer for so long."""
        return self._asked is not None and now - self._asked >= seconds


class EchoLog:
    """pppd's log while the line is up. It is read as it grows, and old echoes are removed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        self._kept = 0
        """The offset after the last line that is not an echo's."""

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
                    # pppd appends; only an echo may be lost that it writes at this moment.
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

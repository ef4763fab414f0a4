"""What was observed: the results of probes, the servers' memory, a capture's flows.

``error`` is empty when a probe succeeded, else a short word for what happened: an errno's
name (``ECONNREFUSED``, ``EHOSTUNREACH``), ``timeout``, ``closed`` (the peer ended it in
good order where more was due) or ``wrong`` (an answer that is not what was asked for).
``seconds`` runs from the probe's start to its end.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a probe went."""

    error: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the probe got its answer."""
        return not self.error


class HttpReply(Outcome, frozen=True, kw_only=True):
    """An HTTP answer. ``body`` holds its first 64 KiB, ``size`` counts all of it."""

    status: int = 0
    body: str = ""
    size: int = 0

    @property
    def json(self) -> Any:
        """The body as JSON; raises ValueError when it is none."""
        return json.loads(self.body)

    @property
    def seen(self) -> str:
        """The address that the server saw, or empty when there was no such answer."""
        try:
            return str(self.json["ip"])
        except (ValueError, KeyError, TypeError):
            return ""


class EchoReply(Outcome, frozen=True, kw_only=True):
    """What an echo server gave back: the address it saw, and our own bytes."""

    seen: str = ""
    text: str = ""
    size: int = 0


class DnsReply(Outcome, frozen=True, kw_only=True):
    """A resolver's answer. A reply with an error code is still an answer (``error`` empty)."""

    rcode: str = ""
    addresses: tuple[str, ...] = ()


class ProbeResult(Outcome, frozen=True, kw_only=True):
    """One way of trying to get out: ``kind`` is ``tcp/80``, ``udp/7``, ``icmp``, …"""

    kind: str
    seen: str = ""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How a download in the background is doing. Times are in seconds."""

    received: int
    """Body bytes so far."""
    error: str = ""
    finished: bool = False
    longest_pause: float = 0.0
    """Between two arrivals, the wait for the next one included while it is open."""
    seen: str = ""
    """The address that the server saw, from its ``X-Seen`` header."""


class FloodReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a flood sent. ``refused`` counts sends that the kernel turned down at once."""

    sent: int
    refused: int
    seconds: float


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """Something a server of the lab's internet was asked, and by whom."""

    time: float
    service: str
    """``http``, ``https``, ``tcp``, ``udp``, ``dns`` or ``dns-tcp``."""
    server: str
    port: int
    source: str
    source_port: int
    text: str
    """HTTP: ``METHOD host path``. DNS: ``name TYPE``. Else the first 200 bytes."""


class Flow(msgspec.Struct, frozen=True, kw_only=True):
    """Captured packets that agree in all of this. Times: nanoseconds of the kernel's clock."""

    interface: str
    outgoing: bool
    """Whether the capture's namespace sent it (else it arrived)."""
    protocol: str
    source: str
    destination: str
    port: int
    """The lower of the two ports; 0 for protocols without ports and for later fragments."""
    token: str
    """Empty for packets without a token."""
    packets: int
    octets: int
    first_ns: int
    last_ns: int


class Packet(msgspec.Struct, frozen=True, kw_only=True):
    """One captured packet with a token, where a capture was asked to keep them."""

    time_ns: int
    interface: str
    outgoing: bool
    protocol: str
    source: str
    destination: str
    port: int
    token: str
    sequence: int
    """The number that a flood wrote behind the token, or -1."""


class Captured(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a capture has seen. A capture that dropped anything proves nothing."""

    flows: tuple[Flow, ...]
    packets: tuple[Packet, ...]
    total: int
    dropped: int

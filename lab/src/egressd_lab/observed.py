"""Observations: the results of probes, the servers' records, a capture's flows.

``error`` is empty if a probe succeeded, else a short word for the fault: an errno's name
(``ECONNREFUSED``, ``EHOSTUNREACH``), ``timeout``, ``closed`` (the peer ended it in good order where
more was due) or ``wrong`` (the answer does not match the request). ``seconds`` runs from the
probe's start to its end.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a probe."""

    error: str = ""
    seconds: float = 0.0

    @property
    def ok(self) -> bool:
        """True if the probe got its answer."""
        return not self.error


class HttpReply(Outcome, frozen=True, kw_only=True):
    """An HTTP answer. ``body`` holds its first 64 KiB, ``size`` counts all of it."""

    status: int = 0
    body: str = ""
    size: int = 0

    @property
    def json(self) -> Any:
        """The body as JSON. Raises ValueError if it is not JSON."""
        return json.loads(self.body)

    @property
    def seen(self) -> str:
        """The address that the server saw; empty if there was no such answer."""
        try:
            return str(self.json["ip"])
        except (ValueError, KeyError, TypeError):
            return ""


class EchoReply(Outcome, frozen=True, kw_only=True):
    """The answer of an echo server: the address it saw, and the client's own bytes."""

    seen: str = ""
    text: str = ""
    size: int = 0


class DnsReply(Outcome, frozen=True, kw_only=True):
    """A resolver's answer. A reply with an error code is still an answer (``error`` empty)."""

    rcode: str = ""
    addresses: tuple[str, ...] = ()


class ProbeResult(Outcome, frozen=True, kw_only=True):
    """The result of one way out: ``kind`` is ``tcp/80``, ``udp/7``, ``icmp``, …"""

    kind: str
    seen: str = ""


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a download in the background. Times are in seconds."""

    received: int
    """Body bytes received so far."""
    error: str = ""
    finished: bool = False
    longest_pause: float = 0.0
    """Seconds of the longest pause between two arrivals, including the present wait."""
    seen: str = ""
    """The address that the server saw, from its ``X-Seen`` header."""


class FloodReport(msgspec.Struct, frozen=True, kw_only=True):
    """The packets of a flood. ``refused`` counts sends that the kernel refused at once."""

    sent: int
    refused: int
    seconds: float


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """A request that a server of the lab's internet received, and its source."""

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
    """True if the capture's namespace sent it, False if it arrived."""
    protocol: str
    source: str
    destination: str
    port: int
    """The lower of the two ports; 0 for protocols without ports and for later fragments."""
    token: str
    """The token; empty for packets without one."""
    packets: int
    octets: int
    first_ns: int
    last_ns: int


class Packet(msgspec.Struct, frozen=True, kw_only=True):
    """One captured packet with a token, from a capture that keeps them."""

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

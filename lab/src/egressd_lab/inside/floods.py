"""Floods: numbered packets at a steady rate, each with its sender's token."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from egressd_lab import packets
from egressd_lab.inside.sockets import open_socket
from egressd_lab.observed import FloodReport

BURST_MAX: Final = 256
"""Packets sent without reading the clock."""
BEHIND_MAX_S: Final = 0.05
"""Seconds of delay beyond which a flood does not catch up, so that it never exceeds its rate."""
_SOURCE_PORTS: Final = range(20_000, 30_000)

Sender = Callable[[int], int]
"""A function that sends the packet of a number and returns the bytes sent."""


class Flood:
    """Sends in a thread of its own until it is stopped.

    `lanes` are (source, token) pairs served in turn; a source is empty for the namespace's own. TCP
    lanes send SYNs that carry the token, each from a port of its own.
    """

    def __init__(
        self,
        *,
        kind: str,
        address: str,
        port: int,
        rate: float,
        size: int,
        lanes: Sequence[tuple[str, str]],
    ) -> None:
        self._rate = rate
        self._sockets: list[socket.socket] = []
        self._address = address
        self._port = port
        self._size = size
        self._senders = [self._lane(kind, *lane) for lane in lanes]
        self._sent = 0
        self._refused = 0
        self._stopping = threading.Event()
        self._started = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def report(self) -> FloodReport:
        """Return the number of packets sent until now."""
        return FloodReport(
            sent=self._sent, refused=self._refused, seconds=time.monotonic() - self._started
        )

    def stop(self) -> FloodReport:
        """End the flood, and return its report."""
        self._stopping.set()
        self._thread.join()
        report = self.report()
        for sock in self._sockets:
            sock.close()
        return report

    def _run(self) -> None:
        begun = time.monotonic()
        done = 0
        for sequence in itertools.count():
            for send in self._senders:
                if done % BURST_MAX == 0 or done >= (time.monotonic() - begun) * self._rate:
                    begun = self._wait_until_due(begun, done)
                    if self._stopping.is_set():
                        return
                done += 1
                try:
                    send(sequence)
                    self._sent += 1
                except OSError:
                    # The router's refusal (an ICMP error for an earlier packet), or a full queue.
                    # Such an answer does not end a flood.
                    self._refused += 1

    def _wait_until_due(self, begun: float, done: int) -> float:
        """Sleep until packet number `done` is due. Return the clock's zero, a new one if far
        behind.
        """
        while not self._stopping.is_set():
            now = time.monotonic()
            early = begun + done / self._rate - now
            if early <= 0:
                return begun if early > -BEHIND_MAX_S else now - done / self._rate
            time.sleep(min(early, 0.1))
        return begun

    def _lane(self, kind: str, source: str, token: str) -> Sender:
        address, port = self._address, self._port

        def payload(sequence: int) -> bytes:
            return f"{token}:{sequence:010d}".encode().ljust(self._size, b".")

        match kind:
            case "udp":
                sock = self._keep(open_socket(address, socket.SOCK_DGRAM, source))
                sock.connect((address, port))
                return lambda n: sock.send(payload(n))
            case "icmp":
                sock = self._keep(open_socket(address, socket.SOCK_RAW, source, packets.ICMP))
                sock.connect((address, 0))
                return lambda n: sock.send(packets.icmp_echo(7, n & 0xFFFF, payload(n)))
            case "tcp":
                own = source or own_address(address)
                raw = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
                sock = self._keep(raw)
                ports = itertools.cycle(_SOURCE_PORTS)

                def send_syn(sequence: int) -> int:
                    syn = packets.tcp(own, address, next(ports), port, payload(sequence))
                    packet = packets.ipv4(own, address, packets.TCP, syn)
                    return sock.sendto(packet, (address, 0))

                return send_syn
            case _:
                raise ValueError(f"a flood is udp, tcp or icmp, not {kind!r}")

    def _keep(self, sock: socket.socket) -> socket.socket:
        sock.setblocking(False)
        self._sockets.append(sock)
        return sock


def own_address(towards: str) -> str:
    """Return the source address that the kernel selects towards an address."""
    with open_socket(towards, socket.SOCK_DGRAM, "") as sock:
        sock.connect((towards, 9))
        return str(sock.getsockname()[0])


class Floods:
    """The running floods, by number."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._floods: dict[int, Flood] = {}

    def start(
        self,
        *,
        kind: str,
        address: str,
        port: int,
        rate: float,
        size: int,
        lanes: list[tuple[str, str]],
    ) -> int:
        """Begin a flood, and return its number."""
        number = next(self._numbers)
        self._floods[number] = Flood(
            kind=kind, address=address, port=port, rate=rate, size=size, lanes=lanes
        )
        return number

    def report(self, number: int) -> FloodReport:
        """Return the number of packets that a flood has sent until now."""
        return self._floods[number].report()

    def stop(self, number: int) -> FloodReport:
        """End a flood and forget it; return its report."""
        return self._floods.pop(number).stop()

"""The probes of the VM tests: clients that send requests all the time, and taps on the WANs."""

from __future__ import annotations

import asyncio
import itertools
import struct
import time
from collections import defaultdict
from contextlib import suppress
from ipaddress import IPv4Address

from egressd.planner.registry import LINE_PORTS
from tests.vm.inside import netns
from tests.vm.inside.network import WEB

PORT = 7000
EVERY_S = 0.5


class Web:
    """Answers on UDP and TCP with the received data and its source address."""

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._udp = netns.udp("web", WEB, PORT)
        loop.add_reader(self._udp, self._answer)
        listener = netns.tcp("web")
        listener.bind((WEB, PORT))
        listener.listen(64)
        self._server = await asyncio.start_server(self._serve, sock=listener)

    def _answer(self) -> None:
        with suppress(BlockingIOError):
            while True:
                data, (address, port) = self._udp.recvfrom(2048)
                with suppress(OSError):
                    self._udp.sendto(data + b" " + address.encode(), (address, port))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.CancelledError):
            while data := await reader.read(2048):
                writer.write(data)


class Client:
    """A LAN client that sends the web server requests several times a second until it is closed."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.answers: list[tuple[float, float, str]] = []
        """The time of each answered request, the time of its answer, and the address seen."""
        self.resets = 0
        """TCP connections that broke."""
        self._asked: dict[int, float] = {}
        self._every_s = EVERY_S
        self._paced = asyncio.Event()

    def start(self) -> None:
        netns.sh(f"ip -n client address add {self.address}/24 dev eth0")
        self._socket = netns.udp("client", self.address)
        asyncio.get_running_loop().add_reader(self._socket, self._hear)
        self._tasks = [asyncio.create_task(self._ask()), asyncio.create_task(self._talk())]

    def close(self) -> None:
        """Stop sending requests."""
        asyncio.get_running_loop().remove_reader(self._socket)
        self._socket.close()
        for task in self._tasks:
            task.cancel()

    def pace(self, every_s: float) -> None:
        """Ask now, and then so often; a client that asks seldom has no TCP connection either."""
        self._every_s = every_s
        self._paced.set()
        if every_s > EVERY_S:
            self._tasks[1].cancel()

    async def _ask(self) -> None:
        number = 0
        while True:
            number += 1
            self._asked[number] = time.monotonic()
            with suppress(OSError):
                self._socket.sendto(str(number).encode(), (WEB, PORT))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._every_s):
                    await self._paced.wait()
            self._paced.clear()

    def _hear(self) -> None:
        while True:
            try:
                number, seen = self._socket.recv(2048).decode().split()
            except BlockingIOError:
                return
            except OSError:
                continue  # an ICMP error: the line is down
            asked = self._asked.pop(int(number))
            self.answers.append((asked, time.monotonic(), seen))

    async def _talk(self) -> None:
        """Keep one TCP connection, and count its breaks."""
        loop = asyncio.get_running_loop()
        while True:
            talking = netns.tcp("client")
            talking.bind((self.address, 0))
            try:
                await asyncio.wait_for(loop.sock_connect(talking, (WEB, PORT)), 5)
                while True:
                    await loop.sock_sendall(talking, b"still there?")
                    if not await loop.sock_recv(talking, 64):
                        raise ConnectionResetError
                    await asyncio.sleep(0.5)
            except TimeoutError:
                pass
            except OSError:
                self.resets += 1
                await asyncio.sleep(0.5)
            finally:
                talking.close()

    # --- Results. ---------------------------------------------------------------------------

    def seen_since(self, since: float) -> set[str]:
        """Return the addresses that the web server saw."""
        return {seen for asked, _, seen in self.answers if asked >= since}

    def gap_since(self, since: float) -> float:
        """Return the longest time between answered requests, in seconds."""
        times = [since, *(asked for asked, _, _ in self.answers if asked >= since)]
        times.append(time.monotonic())
        return max(b - a for a, b in itertools.pairwise(times))

    def cut_and_back(self, since: float) -> tuple[float, float]:
        """Return when it was cut off after `since`, and when it was back, in seconds after it."""
        times = [asked for asked, _, _ in self.answers if asked >= since - 5 * EVERY_S]
        gaps = [(b - a, a, b) for a, b in itertools.pairwise(times) if b >= since]
        _, cut, back = max(gaps)
        return max(cut - since, 0.0), back - since

    async def answered(self, timeout_s: float) -> float:
        """Wait for the answer to a later request, and return the seconds it took."""
        since = time.monotonic()
        async with asyncio.timeout(timeout_s):
            while not self.seen_since(since):  # noqa: ASYNC110 (it sets no event)
                await asyncio.sleep(0.05)
        return time.monotonic() - since


_ETHERNET, _IP = 14, struct.Struct("!B8xB2x4s4s")
_PORTS = struct.Struct("!HH")


class Tap:
    """Counts forbidden packets on a WAN, by the outer header: packets to the web server without a
    tunnel around them, and L2TP of lines with a secret that the router sends unencrypted.
    """

    def __init__(self, interface: str) -> None:
        self.bare: list[float] = []
        self.clear: list[float] = []
        self.encapsulated = 0
        """The number of packets with ESP in UDP (RFC 3948)."""
        self.by_address: defaultdict[str, int] = defaultdict(int)
        """Packets by source address."""
        self._interface = interface

    def start(self) -> None:
        self._socket = netns.raw("isp", self._interface)
        asyncio.get_running_loop().add_reader(self._socket, self._hear)

    def forget(self) -> None:
        """Forget what was there that must not be."""
        self.bare.clear()
        self.clear.clear()

    def _hear(self) -> None:
        with suppress(BlockingIOError):
            while True:
                frame = self._socket.recv(128)
                if frame[12:14] == b"\x08\x00":
                    self._note(frame)

    def _note(self, frame: bytes) -> None:
        length, protocol, source, destination = _IP.unpack_from(frame, _ETHERNET)
        self.by_address[str(IPv4Address(source))] += 1
        if IPv4Address(WEB).packed in (source, destination):
            self.bare.append(time.monotonic())
        start = _ETHERNET + (length & 15) * 4
        if protocol == 17 and len(frame) >= start + 4:
            ports = _PORTS.unpack_from(frame, start)
            self.encapsulated += 4500 in ports
            # Servers may answer in clear text after an association has ended; such packets are
            # dropped.
            if ports[0] in LINE_PORTS:
                self.clear.append(time.monotonic())

"""Bystanders: clients that send requests all the time and must not notice the attacks."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Final

from egressd.model.errors import Failed
from egressd_lab.client import Client
from egressd_lab.device import Api
from egressd_lab.host import Host
from egressd_lab.spec import WEB_SERVERS

PATIENCE_S: Final = 5.0
"""Seconds after which a request has failed."""
_PAUSE_S: Final = 0.2
_WEB: Final = f"http://{WEB_SERVERS[0]}/"

Ask = Callable[[], str]
"""One request: returns the reason of its failure, or an empty string."""


class Bystander:
    """One bystander. Its requests begin with `start` and end with `stop`."""

    def __init__(self, name: str, ask: Ask) -> None:
        self.name = name
        self.served = 0
        self.longest_s = 0.0
        self.failures: list[str] = []
        self.is_excused = False
        """True while its server has been ended on purpose."""
        self._ask = ask
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def start(self) -> None:
        """Begin. Raises Failed if the first request fails."""
        if problem := self._try():
            raise Failed(f"begin with {self.name}", problem)
        self._thread.start()

    def stop(self) -> None:
        """End the requests."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join()

    def _go_on(self) -> None:
        while not self._ending.wait(_PAUSE_S):
            begun = time.monotonic()
            problem = self._try()
            seconds = time.monotonic() - begun
            if self.is_excused:
                continue
            self.longest_s = max(self.longest_s, seconds)
            if problem or seconds > PATIENCE_S:
                self.failures.append(f"{self.name}: {problem or 'late'} after {seconds:.1f} s")
            else:
                self.served += 1

    def _try(self) -> str:
        try:
            return self._ask()
        except (Failed, OSError) as error:
            return str(error)


def web(client: Client, exit_: str) -> Ask:
    """Return a client's web request. The server must see `exit_` as its source."""

    def ask() -> str:
        answer = client.http(_WEB, timeout=PATIENCE_S)
        return "" if answer.seen == exit_ else answer.seen or answer.error

    return ask


def name(client: Client, resolver: str) -> Ask:
    """Return a client's DNS query."""

    def ask() -> str:
        reply = client.dns("www.example.com", resolver, timeout=PATIENCE_S)
        return "" if reply.addresses else reply.rcode or reply.error

    return ask


def api(device: Api) -> Ask:
    """Return a request to the API with the token, sent from the router itself."""

    def ask() -> str:
        answer = device.ask("GET", "/ops/overview", timeout=PATIENCE_S)
        return "" if answer.status == 200 else str(answer.status)

    return ask


def service(host: Host, address: str, port: int, user: str, password: str) -> Ask:
    """Return a request to a proxy service by a caller with the password (RFC 1928, RFC 1929)."""
    word = bytes([1, len(user)]) + user.encode() + bytes([len(password)]) + password.encode()
    to = struct.pack(">BBBB4sH", 5, 1, 0, 1, socket.inet_aton(WEB_SERVERS[0]), 80)
    steps = ((b"\x05\x01\x02", b"\x05\x02"), (word, b"\x01\x00"), (to, b"\x05\x00"))

    def ask() -> str:
        with host.socket(address, port, PATIENCE_S) as sock:
            sock.settimeout(PATIENCE_S)
            for says, answer in steps:
                sock.sendall(says)
                if (heard := sock.recv(64))[:2] != answer:
                    return f"answered {heard.hex()}"
            sock.sendall(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n")
            return "" if sock.recv(64).startswith(b"HTTP/") else "no answer"

    return ask

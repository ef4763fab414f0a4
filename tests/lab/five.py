"""The five sources that explain a client's state: `problems`, *Why?*, the overview, the log, the
events.

The last two arrive unasked. Tests wait for them first, so that no query of their own makes the
device look.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from egressd_lab.device import API_PORT
from egressd_lab.lab import Lab
from egressd_lab.spec import LAN_ADDRESS
from tests.support.device import SERVER, eventually


class Five:
    """The reports since it was made."""

    def __init__(self, lab: Lab, stream: socket.socket) -> None:
        self._lab = lab
        self._stream = stream
        self._log = lab.device.program.log
        self._log_from = self._log.stat().st_size
        self.events: list[dict[str, str]] = []
        self._asking = http.client.HTTPConnection(str(LAN_ADDRESS), API_PORT)
        self._asking.sock = lab.router.socket(str(LAN_ADDRESS), API_PORT, 60)
        self._asking.sock.settimeout(10)
        self.ask("/overview")  # a connection that has served a request may be idle for 30 s
        self._listening = threading.Thread(target=self._listen, daemon=True)
        self._listening.start()

    def close(self) -> None:
        with suppress(OSError):
            self._stream.shutdown(socket.SHUT_RDWR)
        self._listening.join(5)
        self._asking.close()

    def ask(self, path: str) -> Any:
        """Get a document below ``/ops`` by a connection that already existed."""
        headers = {"Authorization": f"Bearer {self._lab.api.token}"}
        self._asking.request("GET", f"/ops{path}", headers=headers)
        return json.loads(self._asking.getresponse().read())

    def await_news(self, words: str, within: float) -> tuple[float, float]:
        """Wait for an event and a log line with the words, and return the seconds until each of
        them.
        """
        begun = time.monotonic()
        try:
            event = eventually(lambda: any(words in each["text"] for each in self.events), within)
        except AssertionError as error:
            error.add_note(f"told was {self.events}")
            raise
        eventually(lambda: words in self.logged(), within)
        return event, time.monotonic() - begun

    def logged(self) -> str:
        with self._log.open("rb") as file:
            file.seek(self._log_from)
            return file.read().decode(errors="replace")

    def _listen(self) -> None:
        with suppress(OSError), self._stream.makefile("rb") as lines:
            for line in lines:
                if line.startswith(b"data: "):
                    self.events.append(json.loads(line.removeprefix(b"data: ")))


@contextmanager
def heard(lab: Lab) -> Iterator[Five]:
    """Listen to the device during the block."""
    stream = lab.router.socket(str(LAN_ADDRESS), API_PORT, 60)
    try:
        stream.settimeout(None)
        stream.sendall(
            b"GET /ops/events?overview=0 HTTP/1.1\r\nHost: device\r\n"
            b"Authorization: Bearer " + lab.api.token.encode() + b"\r\n\r\n"
        )
        assert b" 200 " in stream.recv(15)
        five = Five(lab, stream)
        try:
            yield five
        finally:
            five.close()
    finally:
        stream.close()


Ask = Callable[[str], Any]
"""Gets a document below ``/ops``."""


def asked_anew(lab: Lab) -> Ask:
    """Return a getter that uses a new connection each time."""
    return lambda path: lab.api.ask("GET", f"/ops{path}").body


def overview(lab: Lab) -> Any:
    return asked_anew(lab)("/overview")


def explained(lab: Lab, client: int, destination: str = SERVER, ask: Ask | None = None) -> Any:
    address = lab.client(client).address
    return (ask or asked_anew(lab))(f"/explain?client={address}&destination={destination}")


def all_is_well(lab: Lab, *clients: int) -> bool:
    seen = overview(lab)
    return (
        seen["problems"] == []
        and seen["blocked"] == []
        and not any(flow["problem"] for flow in seen["flows"])
        and not any(explained(lab, client)["reason"] for client in clients)
    )


def assert_all_tell(
    lab: Lab,
    client: int,
    target: str,
    words: str,
    *,
    destination: str = SERVER,
    ask: Ask | None = None,
) -> None:
    """Assert that all sources that can be queried give the same reason."""
    seen = (ask or asked_anew(lab))("/overview")
    told = explained(lab, client, destination, ask)
    (flow,) = [flow for flow in seen["flows"] if flow["target"] == target]
    assert words in flow["problem"], flow
    assert (told["is_blocked"], told["reason"]) == (True, flow["problem"])
    assert told["since"] == flow["since"] != ""
    (cause,) = [one for one in seen["blocked"] if target in one["targets"]]
    assert cause["reason"] == flow["problem"]
    assert cause["text"] in seen["problems"]


def all_tell(lab: Lab, client: int, target: str, words: str) -> bool:
    """True if they agree. While the reason changes, each source may have a different one for a
    moment.
    """
    try:
        assert_all_tell(lab, client, target, words)
    except AssertionError:
        return False
    return True


def mended(lab: Lab, five: Five, is_well: Callable[[], bool], within: float) -> None:
    """Wait until all sources agree that the fault is over."""
    eventually(is_well, within)
    five.await_news("again", within)

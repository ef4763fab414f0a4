"""The clients: those whose rules change, and bystanders that must not notice anything."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Final, Literal

from egressd.model.errors import Failed
from egressd_lab.chaos.judge import Breach, Era, Judge
from egressd_lab.client import Client, Connection, Flood
from egressd_lab.packets import new_token
from egressd_lab.spec import WEB_SERVERS

WEB: Final = f"http://{WEB_SERVERS[0]}/"
PATIENCE_S: Final = 10.0
"""Seconds that a bystander waits for one answer: longer than any recovery may take."""
_TALK_S: Final = 0.1
_QUIC_PORT: Final = 443


class Sender:
    """A client that floods, with a new token for each change of its ways out.

    `rates`: packets a second by kind of flood; ``quic`` is UDP on the port where the domains of a
    whitelist are looked for.
    """

    def __init__(self, client: Client, judge: Judge, rates: Mapping[str, float]) -> None:
        self.client = client
        self.name = client.name
        self.address = client.address
        self.sent = 0
        self.exits: frozenset[str] = frozenset()
        self._judge = judge
        self._rates = rates
        self._floods: list[Flood] = []
        self._era: Era | None = None

    def begin(self, exits: frozenset[str]) -> None:
        """Flood with a new token that may be seen with `exits`; the old token ends."""
        self.stop()
        token = new_token()
        self._era = Era(client=self.name, token=token, exits=exits)
        self._judge.eras[token] = self._era
        self.exits = exits
        self._floods = [self._flood(token, kind, rate) for kind, rate in self._rates.items()]

    def _flood(self, token: str, kind: str, rate: float) -> Flood:
        if kind == "quic":
            return self.client.flood(token, port=_QUIC_PORT, rate=rate)
        return self.client.flood(token, kind=kind, rate=rate)

    @property
    def is_changing(self) -> bool:
        """True if its token may be seen with an exit that may not stay allowed."""
        return self._era is not None and self._era.changing_ns > 0

    def expect_change(self, exits: frozenset[str]) -> None:
        """Note that a change that leads to `exits` is about to be requested."""
        if self._era is not None:
            self._era.begin_change(exits, time.time_ns())

    def answered(self) -> None:
        """Note that the change has been answered; later packets with the old token must obey it."""
        if self._era is not None and self.is_changing:
            self._era.end_change(time.time_ns())

    def stop(self) -> None:
        """End the flood."""
        for flood in self._floods:
            self.sent += flood.stop().sent
        self._floods = []

    def reaches(self) -> str:
        """Return the reason why its requests fail at the moment, or an empty string."""
        seen = self.client.http(WEB, timeout=1.0 if self.exits else 0.3)
        if self.exits:
            return "" if seen.seen in self.exits else (seen.seen or seen.error)
        return "" if not seen.ok else f"{seen.seen}, though it is to be blocked"


Carrier = Literal["kernel", "engine", "line"]
"""The part of egressd that carries a client's traffic."""


class Bystander(Sender):
    """A client that no change names: it floods, and uses one connection all the time."""

    def __init__(
        self, client: Client, judge: Judge, rates: Mapping[str, float], carrier: Carrier
    ) -> None:
        super().__init__(client, judge, rates)
        self.carrier: Carrier = carrier
        self.cuts = 0
        self.longest_pause_s = 0.0
        self.exchanges = 0
        self._excused = False
        self._problem = ""
        self._connection: Connection | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._talk, daemon=True)

    def start_talking(self) -> None:
        """Open the connection and use it in the background."""
        self._connection = self.client.connect(timeout=PATIENCE_S)
        self._thread.start()

    def excuse(self, excused: bool) -> None:
        """Set whether a cut is expected for a while."""
        self._excused = excused

    def look(self) -> Breach | None:
        """Wait until it has exchanged lines again. Return a breach if it was cut without an excuse;
        after a cut it reconnects.
        """
        before = self.exchanges
        deadline = time.monotonic() + 2 * PATIENCE_S
        while self.exchanges < before + 2 and not self._problem:
            if time.monotonic() > deadline:
                self._problem = "said nothing any more"
                break
            time.sleep(0.02)
        if not self._problem:
            return None
        breach = None
        if not self._excused:
            self.cuts += 1
            breach = Breach(promise="P3", what=f"{self.name}'s connection: {self._problem}")
        self._reconnect()
        return breach

    def stop_talking(self) -> None:
        """Close the connection."""
        self._ending.set()
        self._thread.join()
        if self._connection is not None:
            self._connection.close()

    def _reconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        deadline = time.monotonic() + PATIENCE_S
        while self._connection is None:
            # Connections are refused until the lost instance has a successor.
            try:
                self._connection = self.client.connect(timeout=PATIENCE_S)
            except Failed:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self._problem = ""

    def _talk(self) -> None:
        number = 0
        while not self._ending.wait(_TALK_S):
            if self._problem or self._connection is None:
                continue
            number += 1
            try:
                reply = self._connection.exchange(f"{self.name} {number}", timeout=PATIENCE_S)
            except Failed as error:
                self._problem = error.cause
                continue
            if reply.ok:
                self.exchanges += 1
                if not self._excused:
                    self.longest_pause_s = max(self.longest_pause_s, reply.seconds)
            else:
                self._problem = reply.error

"""Random failures of a pair of boxes, under a flood and under changes at both: nothing may leak.

``python -m tests.support.pair_chaos [--minutes N] [--seed SEED] [--rate N]``, or ``script/chaos
--pair``. The exit status is 1 at the first breach:

- a packet of a client on another WAN than its rule's, from an address that is neither box's there
  (RST and ICMP errors included), or later than `_OLD_S` after the answer to the change that
  forbids it; `_QUEUED_S` if it was sent before that answer;
- an acknowledged change that one of the boxes lacks at the end;
- a client that is not served within `_SERVED_S` once all is well again.
"""

from __future__ import annotations

import argparse
import math
import random
import secrets
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from egressd.model.errors import Failed
from egressd_lab.capture import Capture
from egressd_lab.client import Flood
from egressd_lab.device import rule_body
from egressd_lab.observed import Packet
from egressd_lab.packets import new_token
from tests.support.device import eventually
from tests.support.paired_lab import PairedLab, paired_lab

RULES: Final = {1: "DIRECT", 2: "Interface:wan2"}
"""Client -> a target that no change touches. A third client has no rule."""
UNRULED: Final = 3
MOVER: Final = 4
"""The client whose rule changes all the time."""
CLIENTS: Final = 4
WAYS: Final[Mapping[str, int]] = {"DIRECT": 1, "Interface:wan1": 1, "Interface:wan2": 2}
"""Target -> the number of its WAN. Other targets have none."""
TARGETS: Final = (*WAYS, "REJECT")
KINDS: Final = ("udp", "tcp", "icmp")
"""The packets that each client sends: datagrams, SYNs and echo requests."""
_RATE: Final = 100.0
"""Packets a second of each client."""
_ADDED: Final = "10.77.200.{}"
"""The addresses of rules that are made and stay. No client has one."""
_ADDED_MAX: Final = 250
_OLD_S: Final = 0.3
"""Seconds after an answer in which packets that were under way may arrive by the old rule."""
_QUEUED_S: Final = 5.0
"""Seconds that the kernel keeps packets at most for a neighbour whose address it asks for: a cable
that is plugged in again, for example. They have passed the rules."""
_FORGOTTEN_S: Final = 30.0
"""Seconds after which a change that was replaced is of no use: no packet is on its way for long."""
_SERVED_S: Final = 30.0
_HELD_S: Final = (0.2, 6.0)
"""Seconds that a failure lasts."""
_CALM_S: Final = (0.0, 3.0)
"""Seconds between two failures. Some come before the last one is mended."""
_CHANGE_S: Final = (0.05, 0.6)
_JUMPS: Final = (timedelta(), timedelta(days=400), timedelta(days=-400))
"""Offsets of a wall clock."""
_ACTIVE_SHARE: Final = 0.6
"""The part of the failures that are the active box's for certain: only those lead to takeovers."""
_ANSWER_S: Final = 120.0
"""Seconds for an answer: longer than any failure, so that no change is made after it was given up.
"""


class Breach(Exception):
    """Something that must never happen."""


class Asked(NamedTuple):
    """A change of the mover's target. Times are of CLOCK_REALTIME, in seconds."""

    target: str
    asked_at: float
    answered_at: float
    is_acknowledged: bool
    """False if the change failed, or may have been made."""
    sent: Mapping[str, int] = MappingProxyType({})
    """Kind -> the number of the mover's packets that were sent before the answer."""


class Failure(NamedTuple):
    """Something that happens to a box, or to the database if `box` is 0, and its end."""

    name: str
    box: int
    begin: Callable[[], None]
    end: Callable[[], object]


class PairChaos:
    """One run. `say` gets a line for each failure."""

    def __init__(
        self,
        pair: PairedLab,
        *,
        seconds: float,
        seed: int,
        rate: float = _RATE,
        say: Callable[[str], None] = print,
    ) -> None:
        self._pair = pair
        self._seconds = seconds
        self._rate = rate
        self._chance = random.Random(seed)
        self._changes_chance = random.Random(seed + 1)
        self._say = say
        self._tokens = {client: new_token() for client in range(1, CLIENTS + 1)}
        self._asked: list[Asked] = []
        self.added: list[str] = []
        """The addresses of the rules of which is known that they are stored."""
        self._captures: dict[int, Capture] = {}
        self._floods: dict[tuple[int, str], Flood] = {}
        """Client and kind -> its packets."""
        self._is_over = threading.Event()
        self._rules: dict[int, dict[str, Any]] = {}
        """Client -> its rule, as the API lists it at the begin."""
        self.takeovers = self.packets = 0
        """The number of takeovers, and of the clients' packets on the WANs."""

    def run(self) -> None:
        """Let everything happen. Raises Breach."""
        lab = self._pair.lab
        for client, target in {**RULES, MOVER: "REJECT"}.items():
            rule = {"ip": lab.client(client).address, "target_node": target}
            self._pair.boxes[1].api.post("/rules", rule)
            listed = self._pair.boxes[1].api.get("/rules")["data"]
            (self._rules[client],) = [found for found in listed if found["ip"] == rule["ip"]]
        for client in RULES:
            eventually(lambda client=client: self._is_served(client), _SERVED_S)  # type: ignore[misc]
        now = time.time()
        self._asked = [Asked("REJECT", now, now, is_acknowledged=True)]
        with ExitStack() as stack:
            for wan in (1, 2):
                capture = stack.enter_context(lab.internet.capture(f"isp{wan}", keep=True))
                self._captures[wan] = capture
            self._floods = {
                (client, kind): lab.client(client).flood(
                    token, kind=kind, rate=self._rate / len(KINDS)
                )
                for client, token in self._tokens.items()
                for kind in KINDS
            }
            changing = threading.Thread(target=self._change_forever)
            changing.start()
            try:
                self._fail_forever(time.monotonic() + self._seconds)
            finally:
                self._is_over.set()
                changing.join()
            self._pair.mend()
            self._settle()
            for flood in self._floods.values():
                flood.stop()
            self._judge()

    # --- What happens. -------------------------------------------------------------------

    def _fail_forever(self, until: float) -> None:
        active = self._pair.active()
        under_way: list[Failure] = []
        while time.monotonic() < until:
            failure = self._failure()
            self._say(f"{failure.name} {failure.box or ''}")
            failure.begin()
            under_way.append(failure)
            time.sleep(self._chance.uniform(*_HELD_S))
            if self._chance.random() < 0.8:  # otherwise the next one comes on top of it
                self._end(under_way)
                self._pair.mend()
                now = self._pair.active()
                self.takeovers += now != active
                active = now
                self._judge()
            time.sleep(self._chance.uniform(*_CALM_S))
        self._end(under_way)

    def _end(self, under_way: list[Failure]) -> None:
        for box in self._pair.boxes:
            self._pair.signal(box, signal.SIGCONT)  # a frozen process would not end
        while under_way:
            under_way.pop().end()

    def _failure(self) -> Failure:
        pair, box = self._pair, self._chance.choice((1, 2))
        if self._chance.random() < _ACTIVE_SHARE:
            box = pair.active() or box
        device, topology = pair.boxes[box], pair.lab.topology

        def send(number: signal.Signals, *parts: str) -> Callable[[], None]:
            return partial(pair.signal, box, number, *parts)

        def nothing() -> None:
            """Leave it: what was killed is started again."""

        made = [
            Failure(
                "power",
                box,
                lambda: topology.power(box, is_on=False),
                lambda: topology.power(box, is_on=True),
            ),
            Failure(
                "lan",
                box,
                lambda: topology.plug_lan(box, is_in=False),
                lambda: topology.plug_lan(box, is_in=True),
            ),
            Failure(
                "freeze",
                box,
                send(signal.SIGSTOP),
                send(signal.SIGCONT),
            ),
            Failure("stop", box, lambda: device.program.signal(signal.SIGTERM), device.stop),
            Failure("database", 0, pair.database.stop, pair.database.start),
            Failure("database crash", 0, pair.database.kill, pair.database.start),
            Failure("database cut off", box, lambda: self._refuse(box), lambda: self._admit(box)),
            Failure(
                "sync",
                0,
                lambda: topology.plug_sync(is_in=False),
                lambda: topology.plug_sync(is_in=True),
            ),
            *(
                Failure(
                    f"wan{wan}",
                    box,
                    partial(topology.plug_wan, box, wan, is_in=False),
                    partial(topology.plug_wan, box, wan, is_in=True),
                )
                for wan in (1, 2)
            ),
            *(
                Failure(f"kill {part}", box, send(signal.SIGKILL, part), nothing)
                for part in ("keepalived", "conntrackd", "egressd.app netd", "egressd.app api")
            ),
            *(
                Failure(
                    f"freeze {part}", box, send(signal.SIGSTOP, part), send(signal.SIGCONT, part)
                )
                for part in ("egressd.app netd", "egressd.app api")
            ),
        ]
        made += [Failure("clock", of, partial(self._jump, of), nothing) for of in pair.clocks]
        return self._chance.choice(made)

    def _jump(self, of: int) -> None:
        """Set a clock; it stays so."""
        self._pair.clocks[of].set(self._chance.choice(_JUMPS))

    def _refuse(self, box: int) -> None:
        self._pair.database.start()  # an earlier failure may have ended it
        self._pair.refuse(box)

    def _admit(self, box: int) -> None:
        self._pair.database.start()
        self._pair.refuse(box, is_refused=False)

    def _change_forever(self) -> None:
        chance = self._changes_chance
        while not self._is_over.is_set():
            box, target = chance.choice((1, 2)), chance.choice(TARGETS)
            asked_at, is_acknowledged = time.time(), False
            # It may be in force before its answer, whenever that comes.
            self._asked.append(Asked(target, asked_at, math.inf, is_acknowledged=False))
            with suppress(Failed):
                answer = self._pair.boxes[box].api.ask(
                    "PUT",
                    f"/svc/api/v1/rules/{self._rules[MOVER]['id']}",
                    {**rule_body(self._rules[MOVER]), "target_node": target},
                    timeout=_ANSWER_S,
                )
                is_acknowledged = answer.status == 200
            answered_at = time.time()
            self._asked[-1] = Asked(target, asked_at, answered_at, is_acknowledged, self._sent())
            self._add(chance.choice((1, 2)))
            time.sleep(chance.uniform(*_CHANGE_S))

    def _sent(self) -> dict[str, int]:
        """Return the number of packets that the mover has sent until now, by kind."""
        reports = {kind: self._floods[MOVER, kind].report() for kind in KINDS}
        return {kind: report.sent + report.refused for kind, report in reports.items()}

    def _add(self, box: int) -> None:
        """Make another rule at a box, and note it if that is acknowledged."""
        if len(self.added) == _ADDED_MAX:
            return
        rule = {"ip": _ADDED.format(len(self.added) + 1), "target_node": "REJECT"}
        with suppress(Failed):
            path = "/svc/api/v1/rules"
            answer = self._pair.boxes[box].api.ask("POST", path, rule, timeout=_ANSWER_S)
            # A former attempt may have made it without an answer.
            if answer.status == 200 or "already" in str(answer.body):
                self.added.append(rule["ip"])

    # --- Judgement. ----------------------------------------------------------------------

    def _is_served(self, client: int) -> bool:
        return bool(self._pair.seen(client))

    def _settle(self) -> None:
        """Wait until the clients are served, and both boxes have the same rules."""
        for client in RULES:
            try:
                eventually(lambda client=client: self._is_served(client), _SERVED_S)  # type: ignore[misc]
            except AssertionError:
                raise Breach(f"client {client} is not served again") from None
        rules = {box: self._targets(box) for box in self._pair.boxes}
        if rules[1] != rules[2]:
            raise Breach(f"the boxes have other rules: {rules}")
        for box, device in self._pair.boxes.items():
            there = {rule["ip"] for rule in device.api.get("/rules")["data"]}
            if lost := {*self.added} - there:
                raise Breach(f"changes are lost at {box}: {lost}")
        possible = {*self._possible(time.time())}
        if rules[1][MOVER] not in possible:
            raise Breach(f"a change is lost: {rules[1][MOVER]} is none of {possible}")

    def _targets(self, box: int) -> dict[int, str]:
        rules: list[dict[str, Any]] = self._pair.boxes[box].api.get("/rules")["data"]
        targets = {rule["id"]: rule["target_node"] for rule in rules}
        return {client: targets[rule["id"]] for client, rule in self._rules.items()}

    def _possible(self, moment: float, packet: Packet | None = None) -> Iterator[str]:
        """Yield the targets that the mover may have at a moment, as a packet of its shows."""
        asked = [*self._asked]
        for number, each in enumerate(asked):
            until = moment
            for later in asked[number + 1 :]:
                if later.is_acknowledged:
                    until = later.answered_at + _OLD_S
                    if packet and packet.sequence < later.sent.get(packet.protocol, 0):
                        until += _QUEUED_S
                    break
            if each.asked_at <= moment <= until:
                yield each.target

    def _judge(self) -> None:
        """Raise Breach if a packet was on a WAN that its client's rule does not lead to."""
        for wan, capture in self._captures.items():
            for flow in self._pair.strangers(wan, capture):
                raise Breach(f"wan{wan}: {flow}")
            for client, token in self._tokens.items():
                for packet in capture.packets(token):
                    if packet.outgoing:
                        continue
                    self.packets += 1
                    moment = packet.time_ns / 1e9
                    targets = [RULES[client]] if client in RULES else []
                    if client == MOVER:
                        targets = [*self._possible(moment, packet)]
                    if wan not in {WAYS.get(target, 0) for target in targets}:
                        late = f"{moment:.3f}"
                        near = [each for each in self._asked if abs(each.asked_at - moment) < 10]
                        raise Breach(
                            f"wan{wan}: client {client} at {late}, targets {targets}; {packet};"
                            f" asked: {near}"
                        )
            capture.clear()
        self._forget()

    def _forget(self) -> None:
        """Forget the changes that were replaced before any packet that is still to be judged."""
        before = time.time() - _FORGOTTEN_S
        done = [
            n for n, a in enumerate(self._asked) if a.is_acknowledged and a.answered_at < before
        ]
        del self._asked[: done[-1] if done else 0]


def main() -> int:
    parser = argparse.ArgumentParser(prog="script/chaos --pair", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 31))
    parser.add_argument("--rate", type=float, default=_RATE, help="packets a second of a client")
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    with paired_lab(clients=CLIENTS, has_clocks=True) as pair:
        chaos = PairChaos(pair, seconds=60 * given.minutes, seed=given.seed, rate=given.rate)
        try:
            chaos.run()
        except Breach as error:
            print(f"BREACH: {error} (seed {given.seed})", flush=True)
            return 1
    print(
        f"{chaos.takeovers} takeovers, {len(chaos.added)} rules made, {chaos.packets} packets,"
        f" no breach (seed {given.seed})",
        flush=True,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())

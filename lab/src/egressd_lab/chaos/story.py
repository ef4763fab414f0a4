"""The run itself: an event happens, everything is checked, and so on until the time is up."""

from __future__ import annotations

import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

from egressd.model.errors import Failed
from egressd_lab import lines
from egressd_lab.capture import Capture
from egressd_lab.chaos.accidents import API, NETD, WORKER, Accident, Accidents
from egressd_lab.chaos.cast import Bystander, Carrier, Sender
from egressd_lab.chaos.changes import Change, Changes, server_of
from egressd_lab.chaos.desired import INTERFACE, Desired, read
from egressd_lab.chaos.foreign import ForeignSoftware
from egressd_lab.chaos.judge import Breach, Judge
from egressd_lab.chaos.memory import Memory
from egressd_lab.chaos.report import Report, Trace
from egressd_lab.device import Settings
from egressd_lab.lab import Lab
from egressd_lab.lines import LineServer
from egressd_lab.nodes import PASSWORD
from egressd_lab.packets import new_token
from egressd_lab.spec import LabSpec
from egressd_lab.wallclock import WallClock

RECOVER_S: Final = 5.0
"""Seconds within which a way out that is back serves its clients (P2), if nothing is emulated."""
TOLD_S: Final = 2.0
"""Seconds after which a blocked client must appear in ``problems``, while the api lives."""
_GIVE_UP_S: Final = 30.0
_ASK_S: Final = 8.0
_API_BACK_S: Final = 90.0
"""Seconds until the api is given up. It starts in two seconds on a processor of its own, which a
flooded machine does not have.
"""
SPEC: Final = LabSpec(clients=13, wans=3, nodes=("socks5-udp", "ss"))
SUBJECTS: Final = (1, 2, 3, 4, 5, 6)
BYSTANDERS: Final[Mapping[int, tuple[str, Carrier]]] = {
    7: ("DIRECT", "kernel"),
    8: ("Interface:wan3", "kernel"),
    9: ("beta", "engine"),
    10: ("Group_home", "engine"),
}
"""Client -> target. Only the death of the client's carrier may affect them."""
ON_LINE: Final = 13
"""A further bystander, if the kernel has PPP. One line is its own, the other one changes."""
REJECTED: Final = 11
UNRULED: Final = 12
_SUBJECT_SHARE: Final = {"udp": 0.026, "quic": 0.004, "tcp": 0.006, "icmp": 0.004}
_KERNEL_SHARE: Final = {"udp": 0.28, "icmp": 0.01}
_ENGINE_SHARE: Final = {"udp": 0.03}
_BLOCKED_SHARE: Final = {"udp": 0.03, "quic": 0.01, "tcp": 0.02, "icmp": 0.01}


class Chaos:
    """One run. `say` gets a line for each event."""

    def __init__(
        self,
        *,
        minutes: float,
        seed: int,
        rate: float,
        disk: Path,
        say: Callable[[Trace], None],
        recover_s: float = RECOVER_S,
        settings: Settings | None = None,
    ) -> None:
        self._rng = Random(seed)  # noqa: S311 - to be repeatable, not secret
        self._minutes = minutes
        self._rate = rate
        self._disk = disk
        self._say = say
        self._recover_s = recover_s
        self._settings = {"data": {"dir": str(disk)}, **(settings or {})}
        self._begun = time.monotonic()
        self._happened: Counter[str] = Counter()
        self._memory = Memory()
        self._desired = Desired()
        self._lines: list[LineServer] = []
        self._recovering = ThreadPoolExecutor(SPEC.clients)
        self.report = Report(seed=seed, minutes=minutes)

    def run(self) -> Report:
        """Build the lab, let everything happen, and remove the lab."""
        with ExitStack() as stack:
            stack.callback(self._recovering.shutdown)
            lab = stack.enter_context(Lab(SPEC))
            lab.add_node("ss", "spare")
            self._lab = lab
            self._control()
            self._clock = WallClock(lab.folder / "clock")
            if lines.is_possible():
                self._lines = [lab.add_line_server() for _ in range(2)]
            lab.start_egressd(self._settings, self._clock.environment)
            capture = stack.enter_context(lab.internet.capture())
            capture.prove()
            self._set_up(capture)
            stack.callback(self._stop)
            self._play()
        return self.report

    def _control(self) -> None:
        """Check that the capture sees every client leave without egressd."""
        lab = self._lab
        with lab.plain_router(), lab.internet.capture() as capture:
            tokens = {client.name: new_token() for client in lab.clients}
            for client in lab.clients:
                client.udp_echo(tokens[client.name])
            for name, token in tokens.items():
                if "isp1" not in capture.interfaces_of(token):
                    raise Failed("prove the capture", f"{name} is not seen leaving")

    def _set_up(self, capture: Capture) -> None:
        lab = self._lab
        self._capture = capture
        self._wans = {wan.interface: wan.address for wan in lab.wans}
        self._wans |= {server.line: server.assigned_address for server in self._lines}
        self._judge = Judge(
            {wan.far: wan.address for wan in lab.wans},
            {node.link: node.address for node in lab.nodes.values()}
            | {server.link: server.address for server in self._lines},
            {server.address: server.assigned_address for server in self._lines},
        )
        self._foreign = ForeignSoftware(lab, self._rng)
        self._accidents = Accidents(lab, self._rng, self._disk, self._clock, self._foreign)
        subjects = [lab.client(number).address for number in SUBJECTS]
        changing = self._lines[1] if self._lines else None
        self._changes = Changes(self._rng, lab.api, subjects, lab.nodes, changing)
        named = {"alpha": ("socks5-udp", ""), "beta": ("ss", ""), "home1": ("ss", "home")}
        for name, (real, group) in named.items():
            self._must(lab.nodes[real].draft(group) | {"name": name}, "/nodes")
            self._desired = self._desired.with_node(name, server_of(lab.nodes[real]), group)
        bystanders = dict(BYSTANDERS)
        for server in self._lines[:1]:
            self._must(server.draft(), "/vpn-lines")
            self._desired = self._desired.with_line(server.line, PASSWORD, is_enabled=True)
            bystanders[ON_LINE] = (f"{INTERFACE}{server.line}", "line")
        targets = {number: target for number, (target, _) in bystanders.items()}
        for number, target in (targets | {REJECTED: "REJECT"}).items():
            address = lab.client(number).address
            self._must({"ip": address, "target_node": target}, "/rules")
            self._desired = self._desired.with_rule(address, target)
        self._subjects = [self._sender(number, _SUBJECT_SHARE) for number in SUBJECTS]
        self._blocked = [self._sender(n, _BLOCKED_SHARE) for n in (REJECTED, UNRULED)]
        self._bystanders = [self._bystander(n, by) for n, (_, by) in bystanders.items()]
        for sender in self._everybody():
            sender.begin(self._exits(sender))
        for bystander in self._bystanders:
            self._wait_for(bystander)
            bystander.start_talking()

    def _must(self, body: dict[str, Any], path: str) -> None:
        self._lab.api.post(path, body)

    def _sender(self, number: int, shares: dict[str, float]) -> Sender:
        return Sender(self._lab.client(number), self._judge, self._rates(shares))

    def _bystander(self, number: int, carrier: Carrier) -> Bystander:
        shares = _KERNEL_SHARE if carrier == "kernel" else _ENGINE_SHARE
        return Bystander(self._lab.client(number), self._judge, self._rates(shares), carrier)

    def _wait_for(self, sender: Sender) -> None:
        """Wait until it has a way out: a line takes a moment to be dialled."""
        begun = time.monotonic()
        while problem := sender.reaches():
            if time.monotonic() - begun > _GIVE_UP_S:
                raise Failed("begin", f"{sender.name} does not get out: {problem}")
            time.sleep(0.1)

    def _rates(self, shares: dict[str, float]) -> dict[str, float]:
        return {kind: share * self._rate for kind, share in shares.items()}

    def _everybody(self) -> Sequence[Sender]:
        return [*self._subjects, *self._blocked, *self._bystanders]

    def _exits(self, sender: Sender, desired: Desired | None = None) -> frozenset[str]:
        return (desired or self._desired).exits(sender.address, self._wans)

    # --- Events. ------------------------------------------------------------------------

    def _play(self) -> None:
        accidents = self._accidents.all()
        end = time.monotonic() + self._minutes * 60
        self._look("begin", time.monotonic())
        while time.monotonic() < end and not self.report.breaches:
            draw = self._rng.random()
            if draw < 0.5:
                self._change(None)
            elif draw < 0.65:
                kills = [a for a in accidents if a.is_kill]
                self._change(self._rng.choices(kills, [a.weight for a in kills])[0])
            else:
                self._befall(self._rng.choices(accidents, [a.weight for a in accidents])[0])

    def _befall(self, accident: Accident) -> None:
        self._excuse(accident.cuts)
        accident.happen()
        since = time.monotonic()
        answer = ""
        if accident.name == "the disk is full":
            answer = self._change_on_full_disk()
            since = time.monotonic()
        self.report.kills += accident.is_kill
        self._look(accident.name, since, answer=answer)

    def _change_on_full_disk(self) -> str:
        """Request a change that cannot be stored: it must be refused, and the old state stays in
        force.
        """
        try:
            change = self._changes.draw(self._desired)
            if change.cuts_everybody:
                self._excuse("everybody")
            return self._ask(change)
        except Failed as error:
            return str(error)
        finally:
            self._accidents.empty_disk()

    def _change(self, meanwhile: Accident | None) -> None:
        """Request a random change; `meanwhile` happens in the middle of it."""
        change = self._changes.draw(self._desired)
        cuts = "everybody" if change.cuts_everybody else meanwhile.cuts if meanwhile else "nobody"
        self._excuse(cuts)
        since = time.monotonic()
        if meanwhile is None:
            answer = self._ask(change)
        else:
            delay = self._rng.uniform(0, 0.06)
            hand = threading.Thread(target=_later, args=(delay, meanwhile.happen))
            hand.start()
            answer = self._ask(change)
            hand.join()
            since = time.monotonic()
            self.report.kills += 1
        self.report.changes += 1
        what = change.text + (f", and {meanwhile.name}" if meanwhile else "")
        self._look(what, since, answer=answer, kind="change" if meanwhile is None else "")

    def _ask(self, change: Change) -> str:
        """Send the request, and find out its outcome."""
        for sender in self._subjects:
            exits = self._exits(sender, change.after)
            if exits != sender.exits:
                sender.expect_change(exits)
        try:
            answer = change.ask(self._lab.api, _ASK_S)
        except Failed as error:
            self._settle(change, self._desired, change.after)
            return f"no answer: {error.cause}"
        if answer.status >= 500:
            # If netd went away in the middle, it may have the change until the api is back.
            self._settle(change, self._desired)
            return f"{answer.status}: {answer.body}"
        is_done = answer.status == 200 and not answer.body.get("error")
        if is_done:
            self._desired = change.after
            for sender in self._subjects:
                sender.answered()
        self._rotate()
        return str(answer.status) if is_done else f"{answer.status}: {answer.body}"

    def _settle(self, change: Change, *allowed: Desired) -> None:
        """Find out the outcome of a change that was not reported to be in force."""
        self._wait_for_api()
        found = read(self._lab.api)
        if found not in allowed:
            self._breach("P4", f"{change.text}: it has become {found}")
        self._desired = found
        self._rotate()

    def _rotate(self) -> None:
        """Give new tokens to all clients whose ways out have changed."""
        for sender in self._subjects:
            exits = self._exits(sender)
            if exits != sender.exits or sender.is_changing:
                sender.begin(exits)

    def _excuse(self, cuts: str) -> None:
        for bystander in self._bystanders:
            bystander.excuse(cuts in ("everybody", bystander.carrier))

    # --- Checks. -------------------------------------------------------------------------

    def _look(self, what: str, since: float, *, answer: str = "", kind: str = "") -> None:
        known = len(self.report.breaches)
        blocks = list(self._recovering.map(lambda s: self._recover(s, since), self._everybody()))
        longest = max(blocks)
        if longest > self.report.longest_block_s:
            self.report.longest_block_s, self.report.longest_block_after = longest, what
        for bystander in self._bystanders:
            if breach := bystander.look():
                self.report.breaches.append(breach)
        api_s = self._wait_for_api()
        self._check_nothing_lost()
        flows = self._capture.read().flows
        self.report.breaches += self._judge.judge(flows)
        self.report.own = self._judge.own(flows)
        self._memory.look({p: self._lab.device.pids(p) for p in (NETD, API, WORKER)})
        self._happened[kind or what] += 1
        self._say(
            Trace(
                second=round(time.monotonic() - self._begun, 1),
                what=what,
                answer=answer,
                longest_block_s=round(longest, 2),
                api_back_s=round(api_s, 2),
                breaches=tuple(f"{b.promise}: {b.what}" for b in self.report.breaches[known:]),
            )
        )

    def _recover(self, sender: Sender, since: float) -> float:
        """Return the seconds until its requests succeed or fail as they should."""
        is_told = False
        while problem := sender.reaches():
            waited = time.monotonic() - since
            if waited > _GIVE_UP_S:
                break
            if waited > TOLD_S and not is_told:
                is_told = True
                if self._problems() == []:
                    self.report.untold += 1
                    self._breach("P2", f"{sender.name} is blocked, and nothing tells of it")
            time.sleep(0.02)
        seconds = time.monotonic() - since
        if problem or seconds > self._recover_s:
            text = f"{sender.name} ({self._desired.rules.get(sender.address)})"
            self._breach("P2", f"{text} was as it should be after {seconds:.1f} s only {problem}")
        return seconds

    def _problems(self) -> list[str] | None:
        """Return the problems that the device reports; None while it does not answer."""
        with suppress(Failed):
            answer = self._lab.api.ask("GET", "/ops/overview", timeout=TOLD_S)
            if answer.status == 200:
                return list(answer.body["problems"])
        return None

    def _wait_for_api(self) -> float:
        begun = time.monotonic()
        while not self._is_healthy():
            if time.monotonic() - begun > _API_BACK_S:
                raise Failed("wait for the api", self._lab.device.program.tail())
            time.sleep(0.02)
        seconds = time.monotonic() - begun
        self.report.longest_api_wait_s = max(self.report.longest_api_wait_s, seconds)
        return seconds

    def _is_healthy(self) -> bool:
        with suppress(Failed):
            return self._lab.api.ask("GET", "/ops/health", timeout=_ASK_S).status == 200
        return False

    def _check_nothing_lost(self) -> None:
        found = read(self._lab.api)
        if found != self._desired:
            self._breach("P4", f"what was accepted is not there: {self._desired} but {found}")

    def _breach(self, promise: str, what: str) -> None:
        self.report.breaches.append(Breach(promise=promise, what=what))

    def _stop(self) -> None:
        self._foreign.leave()
        for bystander in self._bystanders:
            bystander.stop_talking()
        for sender in self._everybody():
            sender.stop()
        report = self.report
        report.happened = dict(self._happened.most_common())
        report.sent = sum(sender.sent for sender in self._everybody())
        report.captured = self._capture.read().total
        report.wrong = sum(b.packets for b in report.breaches)
        report.exchanges = sum(b.exchanges for b in self._bystanders)
        report.cuts = sum(b.cuts for b in self._bystanders)
        report.longest_pause_s = max(b.longest_pause_s for b in self._bystanders)
        report.memory = self._memory.summary()
        report.breaches += self._memory.breaches()
        shutil.copy(self._lab.device.program.log, self._disk.parent)


def _later(delay: float, happen: Callable[[], None]) -> None:
    time.sleep(delay)
    with suppress(Failed):
        happen()

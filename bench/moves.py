"""One client's move among many rules: egressd's API against its peers' documented means.

| contestant | how a client is moved |
|---|---|
| egressd | ``PUT /rules/{id}`` |
| sing-box, reload | the configuration rewritten, SIGHUP |
| sing-box, rule-set files | two local rule sets rewritten, which it watches |
| Xray, restart | the configuration rewritten, the service restarted |
| Xray, API | ``RoutingService``: the client's rule removed, another appended |

Time runs from the request until a datagram of the client, from a new port, has left by the new way
and come back. Up to 20 other clients hold connections open. The benchmark counts those that do not
survive the moves, and checks the mover's own old connection. The time of such a datagram without
any change is measured beside them: it is the lower bound.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import cycle
from pathlib import Path

from bench import peers
from bench.arguments import Arguments
from bench.changes import BYSTANDERS, Connection, address, fill
from bench.figures import compared, keep, show
from bench.sites import SERVER, Site, alternate
from egressd_lab.client import Connection as Held
from egressd_lab.device import rule_body
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec

ROUNDS = 12
RULES = (10, 1_000, 10_000)
BASE = "egressd"
PROBE = "the datagram alone"
FIGURE = "request to effect (ms)"
MOVER = 1
_GIVE_UP_S = 30.0

Lists = dict[str, list[str]]
"""Addresses by target."""


def lists(lab: Lab, rules: int) -> Lists:
    """Return the same rules as `fill` gives egressd, by target."""
    own = [lab.client(n).address for n in (MOVER, *BYSTANDERS)][:rules]
    others = [address(n) for n in range(rules)]
    direct = (own + others)[: max(rules - 2, 1)]
    return {"wan2": ["10.77.0.241"], "ss": ["10.77.0.240"], "direct": direct}


class Contestant:
    """One means of moving clients, in a lab of its own."""

    def __init__(self, site: Site, rules: int) -> None:
        self.site = site
        self.lab = site.lab
        self.rules = rules
        self.lists = lists(self.lab, rules)
        self._targets = cycle(["wan2", "ss", "direct"])
        self._held: list[Held] = []
        self.set_up()

    def set_up(self) -> None:
        """Make it the router, with all clients at their first target."""
        raise NotImplementedError

    def get_ready(self, target: str) -> None:
        """Do the preparations that are not timed."""

    def move(self, target: str) -> None:
        """Move the mover to ``direct``, ``wan2`` or ``ss``."""
        raise NotImplementedError

    def connect(self) -> None:
        """Let the other clients hold connections, and start the processes for the
        mover's probes.
        """
        self.lab.client(MOVER).udp_echo("ready", SERVER)
        others = BYSTANDERS[: 6 if self.rules < len(BYSTANDERS) else None]
        self._held = [self.lab.client(n).connect() for n in others]

    def sample(self) -> dict[str, float]:
        """Return the milliseconds of one move."""
        target = next(self._targets)
        self._keep_lists(target)
        self.get_ready(target)
        return {FIGURE: self._within_router(target) * 1000}

    def probe(self) -> dict[str, float]:
        """Return the milliseconds of a datagram there and back."""
        begun = time.perf_counter()
        self.lab.client(MOVER).udp_echo("which way", SERVER, timeout=0.2)
        return {FIGURE: (time.perf_counter() - begun) * 1000}

    def _within_router(self, target: str) -> float:
        return self.timed(target)

    def timed(self, target: str) -> float:
        """Return the seconds until the move takes effect."""
        exits = {
            "direct": self.lab.wan(1).address,
            "wan2": self.lab.wan(2).address,
            "ss": self.lab.nodes["ss"].address,
        }
        mover = self.lab.client(MOVER)
        begun = time.perf_counter()
        self.move(target)
        while mover.udp_echo("which way", SERVER, timeout=0.2).seen != exits[target]:
            if time.perf_counter() > begun + _GIVE_UP_S:
                raise RuntimeError(f"{type(self).__name__}: no effect in {_GIVE_UP_S} s")
        return time.perf_counter() - begun

    def outcome(self) -> dict[str, float]:
        """Return the fate of the others' connections, and that of the mover's own at
        one more move.
        """
        cut = sum(not held.exchange("still there").ok for held in self._held)
        found: dict[str, float] = {"others": len(self._held), "others cut": cut}
        own = self.lab.client(MOVER).connect()
        if own.exchange("there").ok:
            self.sample()
            found["own old flow stays"] = float(own.exchange("still there", timeout=2).ok)
        return found

    def _keep_lists(self, target: str) -> None:
        address = self.lab.client(MOVER).address
        for addresses in self.lists.values():
            if address in addresses:
                addresses.remove(address)
        self.lists[target].append(address)


class Egressd(Contestant):
    """Moves by `PUT /rules/{id}`."""

    def set_up(self) -> None:
        self.lab.start_egressd()
        self.lab.api.post("/nodes", self.lab.nodes["ss"].draft())
        fill(self.lab, self.rules)
        mover = self.lab.client(MOVER).address
        rule = next(r for r in self.lab.api.get("/rules")["data"] if r["ip"] == mover)
        self._path = f"/rules/{rule['id']}"
        self._body = rule_body(rule)

    def get_ready(self, target: str) -> None:
        self._api = Connection(self.lab)

    def move(self, target: str) -> None:
        names = {"direct": "DIRECT", "wan2": "Interface:wan2", "ss": "ss"}
        self._api.call("PUT", self._path, {**self._body, "target_node": names[target]})


class SingBox(Contestant):
    """A configuration with one rule for each target, and SIGHUP."""

    def set_up(self) -> None:
        self._outbounds = [
            {"type": "direct", "tag": "wan2", "bind_interface": "wan2"},
            peers.sing_box_outbound("ss", "ss", *self._node()),
            peers.DIRECT,
        ]
        self.engine = peers.with_tproxy(self.lab, "sing-box", self.document())

    def _node(self) -> tuple[str, int]:
        return self.lab.nodes["ss"].address, self.lab.nodes["ss"].port

    def document(self) -> peers.Document:
        rules = [
            {"source_ip_cidr": addresses, "outbound": target}
            for target, addresses in self.lists.items()
            if addresses
        ]
        return peers.sing_box(self._outbounds, rules)

    def move(self, target: str) -> None:
        self.engine.write(self.document())
        self.engine.reload()


class SingBoxRuleSets(SingBox):
    """One rule set for each target, in files that the engine watches."""

    def document(self) -> peers.Document:
        for target in self.lists:
            self._write(target)
        rules = [{"rule_set": target, "outbound": target} for target in self.lists]
        rule_sets = [
            {"type": "local", "tag": target, "format": "source", "path": str(self._path(target))}
            for target in self.lists
        ]
        return peers.sing_box(self._outbounds, rules, rule_sets)

    def move(self, target: str) -> None:
        before = {"wan2": "direct", "ss": "wan2", "direct": "ss"}[target]
        for changed in (target, before):
            self._write(changed)

    def _path(self, target: str) -> Path:
        return self.lab.folder / f"{target}.rules.json"

    def _write(self, target: str) -> None:
        rule = {"source_ip_cidr": self.lists[target]}
        text = json.dumps({"version": 3, "rules": [rule] if self.lists[target] else []})
        fresh = self._path(target).with_suffix(".new")
        fresh.write_text(text)
        fresh.rename(self._path(target))


class XrayRestart(Contestant):
    """A configuration with one rule for each target, and a restart."""

    def set_up(self) -> None:
        self._outbounds = [
            peers.FREEDOM,
            {
                "tag": "wan2",
                "protocol": "freedom",
                "streamSettings": {"sockopt": {"interface": "wan2"}},
            },
            peers.xray_outbound(
                "ss", "ss", self.lab.nodes["ss"].address, self.lab.nodes["ss"].port
            ),
        ]
        self.engine = peers.with_tproxy(self.lab, "xray", self.document())

    def document(self) -> peers.Document:
        rules = [
            {"type": "field", "source": addresses, "outboundTag": target}
            for target, addresses in self.lists.items()
            if addresses
        ]
        return peers.xray(self._outbounds, rules)

    def get_ready(self, target: str) -> None:
        self._successor = self.engine.prepare()

    def move(self, target: str) -> None:
        self.engine.write(self.document())
        self.engine.replace(self._successor)


class XrayApi(XrayRestart):
    """A rule for each client, since each may have to move, and Xray's API."""

    def document(self) -> peers.Document:
        rules = [
            {"type": "field", "ruleTag": ip, "source": [ip], "outboundTag": target}
            for target, ips in self.lists.items()
            for ip in ips
        ]
        return peers.xray(self._outbounds, rules)

    def get_ready(self, target: str) -> None:
        """Do nothing."""

    def _within_router(self, target: str) -> float:
        return self.site.within("router").run(self._call, target)

    def _call(self, target: str) -> float:
        from bench.xray_api import XrayApi as Client

        self._client = Client(f"127.0.0.1:{peers.XRAY_API}")
        return self.timed(target)

    def move(self, target: str) -> None:
        mover = self.lab.client(MOVER).address
        self._client.remove(mover)
        self._client.add(mover, mover, target)


CONTESTANTS: Mapping[str, Callable[[Site, int], Contestant]] = {
    BASE: Egressd,
    "sing-box, reload": SingBox,
    "sing-box, rule-set files": SingBoxRuleSets,
    "Xray, restart": XrayRestart,
    "Xray, API": XrayApi,
}


def measure(rules: int, rounds: int) -> dict[str, dict[str, float]]:
    """Measure all contestants with `rules` rules."""
    with ExitStack() as stack:
        made: dict[str, Contestant] = {}
        for name, make in CONTESTANTS.items():
            spec = LabSpec(clients=max(BYSTANDERS), nodes=("ss",))
            made[name] = make(stack.enter_context(Site(spec)), rules)
        for contestant in made.values():
            contestant.connect()
            contestant.sample()
        ways = {name: partial(_sample, name, made[name]) for name in made}
        samples = alternate(rounds, {**ways, PROBE: made[BASE].probe})
        rows = compared(samples, BASE)[FIGURE]
        for name, contestant in made.items():
            rows[name] |= contestant.outcome()
    return rows


def _sample(name: str, contestant: Contestant) -> dict[str, float]:
    found = contestant.sample()
    print(name, contestant.rules, found, file=sys.stderr)
    return found


def main() -> None:
    """Measure with 10, 1,000 and 10,000 rules."""
    arguments = Arguments("moves", __doc__)
    arguments.number("--rounds", ROUNDS, "moves of each means")
    given = arguments.read()
    tables = {f"{rules:,} rules": measure(rules, given.rounds) for rules in RULES}
    for title, rows in tables.items():
        show(f"one client's move, request to effect (ms); {title}", rows)
    keep("moves", tables, given.json)


if __name__ == "__main__":
    main()

"""The run itself: every hand tries, every bystander sends requests, and all is checked once a
second.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from egressd.model.errors import Failed
from egressd_lab.attack import bystanders
from egressd_lab.attack.bystanders import Bystander
from egressd_lab.attack.files import Files
from egressd_lab.attack.hands import BREACH
from egressd_lab.attack.peaks import Peaks
from egressd_lab.device import API_PORT, TLS_PORT
from egressd_lab.lab import Lab
from egressd_lab.process import Program
from egressd_lab.spec import LAN_ADDRESS, RESOLVERS, WEB_SERVERS, LabSpec

KEEPER, NETD, API, WORKER = "serve", "egressd.app netd", "egressd.app api", "engine.worker"
"""Parts of the command lines of egressd's processes."""
USER, PASSWORD = "lab", "open sesame"
_SERVICE_PORT: Final = 1080
_EVIL_PORT: Final = 1081
_FILES_EVERY_S: Final = 10.0
_KILL_EVERY_S: Final = 60.0
_API_BACK_S: Final = 15.0
"""Seconds after a kill of the api during which its answers may fail."""
_STRANGERS: Final = 200
"""Addresses that strangers call from."""
NOBODY, NOBODY6 = "203.0.113.250", "2001:db8:f::250"
"""Servers outside that only the client without a way out sends to."""
_LAN: Final = "10.77.0.0/24"
_OUTSIDE: Final = """
table inet watch {{
    chain pre {{
        type filter hook prerouting priority -400
        iifname "isp*" ip daddr {nobody} counter
        iifname "isp*" ip6 daddr {nobody6} counter
        iifname "isp*" ip saddr {lan} counter
    }}
}}
table ip silent {{
    chain pre {{
        type filter hook prerouting priority -300
        # The resolver of the attackers' node answers nobody.
        ip saddr {attacked} udp dport 53 drop
    }}
}}
"""
SPEC: Final = LabSpec(clients=9, wans=2, nodes=("socks5", "ss"))


class Report(msgspec.Struct, kw_only=True):
    """The sums of a run."""

    seed: int
    seconds: float = 0.0
    tried: dict[str, dict[str, int]] = {}
    """Hand -> word -> number of attempts."""
    served: dict[str, int] = {}
    longest_s: dict[str, float] = {}
    """Bystander -> the seconds of its longest request."""
    peaks: dict[str, tuple[int, int]] = {}
    """Part -> the largest resident memory of one of its processes, in bytes, in the first and in
    the last third of the run.
    """
    breaches: list[str] = []


class Attack:
    """One run. `say` gets a line for each event that is worth reporting."""

    def __init__(self, *, minutes: float, seed: int, say: Callable[[str], None]) -> None:
        self._seed = seed
        self._minutes = minutes
        self._say = say
        self._rng = Random(seed)  # noqa: S311 - to be repeatable, not secret
        self._hands: dict[str, Program] = {}
        self._bystanders: list[Bystander] = []
        self._of_api: Bystander | None = None
        self._seen_before = 0
        self._peaks = Peaks()
        self.report = Report(seed=seed)

    def run(self) -> Report:
        """Build the lab, let all hands try, and remove the lab."""
        with ExitStack() as stack:
            lab = stack.enter_context(Lab(SPEC))
            self._lab = lab
            lab.add_node("ss", "attacked")
            lab.start_egressd()
            self._set_up()
            files = Files(lab.device, lab.folder, self._rng)
            stack.callback(self._stop)
            for bystander in self._bystanders:
                bystander.start()
            self._attack()
            begun = time.monotonic()
            files_at, kill_at, killed_at = begun, begun + _KILL_EVERY_S / 2, -_API_BACK_S
            while time.monotonic() - begun < self._minutes * 60 and not self.report.breaches:
                time.sleep(1)
                self._excuse(time.monotonic() - killed_at < _API_BACK_S)
                if time.monotonic() > files_at:
                    files_at = time.monotonic() + _FILES_EVERY_S
                    self._try_file(files)
                if time.monotonic() > kill_at:
                    killed_at = time.monotonic()
                    kill_at = killed_at + _KILL_EVERY_S
                    self._kill_api()
                self._look()
            self.report.seconds = time.monotonic() - begun
        return self.report

    # --- The scene. -------------------------------------------------------------------------

    def _set_up(self) -> None:
        lab, api = self._lab, self._lab.api
        for name, real in (("home1", "socks5"), ("home2", "ss")):
            api.post("/nodes", lab.nodes[real].draft("home") | {"name": name})
        api.post("/nodes", lab.nodes["ss"].draft() | {"name": "beta"})
        api.post("/nodes", lab.nodes["attacked"].draft() | {"name": "attacked"})
        evil = {"server": WEB_SERVERS[2], "port": _EVIL_PORT, "udp": True}
        evil_draft = {"name": "evil", "protocol": "socks5", "config_json": json.dumps(evil)}
        api.post("/nodes", {**evil_draft, "group": ""})
        table = _OUTSIDE.format(
            nobody=NOBODY, nobody6=NOBODY6, lan=_LAN, attacked=lab.nodes["attacked"].address
        )
        lab.internet.run("nft", "-f", "-", stdin=table)
        for address in (f"{NOBODY}/32", f"{NOBODY6}/128"):
            lab.internet.run("ip", "address", "add", address, "dev", "lo")
        targets = {
            1: "REJECT", 2: "attacked", 3: "evil",
            4: "DIRECT", 5: "Interface:wan2", 6: "beta", 7: "Group_home", 8: "beta",
        }  # fmt: skip
        for number, target in targets.items():
            rule = {"ip": lab.client(number).address, "target_node": target}
            api.post("/rules", rule)
        self._prove_watch()
        service = {"name": "office", "outbound_interface": "wan2", "port": _SERVICE_PORT}
        sign_in = {"username": USER, "password": PASSWORD, "is_enabled": True}
        api.post("/proxy-services", service | sign_in)
        strangers = (f"203.0.113.{n}" for n in range(64, 64 + _STRANGERS - 64))
        self._sources = [*WEB_SERVERS[1:], *(a for a in strangers if a not in RESOLVERS.values())]
        for address in self._sources[2:]:
            lab.internet.run("ip", "address", "add", f"{address}/32", "dev", "lo")
        self._cast()

    def _prove_watch(self) -> None:
        """Prove that the rules outside count a client's packet, by a client that may leave."""
        self._lab.client(4).ping(NOBODY)
        self._seen_before = self._counted()
        if not self._seen_before:
            raise Failed("prove the watch", "it does not see a client's packet")

    def _counted(self) -> int:
        """Return the number of packets that were seen outside and must not be."""
        told = self._lab.internet.run("nft", "list", "table", "inet", "watch").stdout
        return sum(map(int, re.findall(r"counter packets (\d+)", told)))

    def _cast(self) -> None:
        lab = self._lab
        node = lab.nodes["ss"].address
        wan = lab.wan(1).address
        self._of_api = Bystander("the API", bystanders.api(lab.api))
        called = (str(LAN_ADDRESS), _SERVICE_PORT, USER, PASSWORD)
        self._bystanders = [
            Bystander("DIRECT", bystanders.web(lab.client(4), wan)),
            Bystander("a WAN's", bystanders.web(lab.client(5), lab.wan(2).address)),
            Bystander("a node's", bystanders.web(lab.client(6), node)),
            Bystander("names", bystanders.name(lab.client(8), RESOLVERS["google"])),
            Bystander("a service in the LAN", bystanders.service(lab.client(4).host, *called)),
            Bystander(
                "a service outside",
                bystanders.service(lab.internet, wan, _SERVICE_PORT, USER, PASSWORD),
            ),
            self._of_api,
        ]

    # --- The attackers. ---------------------------------------------------------------------

    def _attack(self) -> None:
        lab = self._lab
        wans = [wan.address for wan in lab.wans]
        own_ports = [API_PORT, TLS_PORT, _SERVICE_PORT]
        first = lab.client(1)
        self._hand(
            "frames", first.host.namespace,
            interface="eth0", mac=lab.router.mac("lan0").hex(), own=first.address,
            own6=first.address6, servers=[NOBODY],
            servers6=[NOBODY6], router=[str(LAN_ADDRESS), *wans],
        )  # fmt: skip
        self._hand(
            "errors", lab.internet.namespace,
            ways=[[w.far, w.address, lab.router.mac(w.interface).hex()] for w in lab.wans],
            servers=[[node.address, node.port] for node in lab.nodes.values()],
            sources=[*WEB_SERVERS, *RESOLVERS.values()],
        )  # fmt: skip
        asked = [str(LAN_ADDRESS), RESOLVERS["google"], RESOLVERS["quad9"]]
        self._hand("questions", lab.client(2).host.namespace, servers=asked)
        for number in (2, 3):
            self._hand(
                "connections", lab.client(number).host.namespace, f"connections{number}",
                servers=[WEB_SERVERS[0]], ports=[7, 80, 443],
            )  # fmt: skip
        self._hand(
            "strangers", lab.internet.namespace,
            addresses=wans, ports=own_ports, sources=self._sources,
        )  # fmt: skip
        self._hand(
            "node", lab.internet.namespace,
            address=WEB_SERVERS[2], port=_EVIL_PORT,
            names=[*WEB_SERVERS, str(LAN_ADDRESS), lab.client(4).address, *wans],
        )  # fmt: skip
        folder = lab.folder / "egressd"
        self._hand(
            "locals", lab.router.namespace,
            folders=[str(folder / "data"), str(folder / "run")], ports=own_ports,
            token=lab.api.token, pids=[p for part in (NETD, API, WORKER) for p in self._pids(part)],
        )  # fmt: skip

    def _hand(self, name: str, namespace: str, called: str = "", **told: Any) -> None:
        called = called or name
        core = str(max(os.sched_getaffinity(0)))
        argv = [sys.executable, "-m", "egressd_lab.attack.hand", name, str(self._seed), core]
        hand = Program(namespace, [*argv, json.dumps(told)], self._lab.folder / f"{called}.log")
        hand.start()
        self._hands[called] = hand

    def _try_file(self, files: Files) -> None:
        name, is_taken = files.attack()
        tried = self.report.tried.setdefault("files", {})
        tried[name] = tried.get(name, 0) + 1
        if is_taken:
            self._breach(f"a backup with {name} was taken")

    def _kill_api(self) -> None:
        """Kill the api, to give a chance to hands that wait for its port or its absence."""
        self._excuse(True)
        for pid in self._pids(API):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._say("the api is killed")

    def _excuse(self, is_excused: bool) -> None:
        if self._of_api is not None:
            self._of_api.is_excused = is_excused

    # --- Checks. ----------------------------------------------------------------------------

    def _look(self) -> None:
        self._peaks.look({part: self._pids(part) for part in (KEEPER, NETD, API, WORKER)})
        for name, hand in self._hands.items():
            tried = _last(hand.log)
            self.report.tried[name] = tried
            for word in tried:
                if word.startswith(BREACH):
                    self._breach(f"{name} {word.removeprefix(BREACH)}")
            if not hand.running:
                self._breach(f"the hand {name} has ended: {hand.tail()}")
        if packets := self._counted() - self._seen_before:
            self._breach(f"{packets} packets of a client that is to be blocked got out")
        for bystander in self._bystanders:
            while bystander.failures:
                self._breach(bystander.failures.pop(0))

    def _pids(self, part: str) -> list[int]:
        return self._lab.device.pids(part)

    def _breach(self, what: str) -> None:
        self.report.breaches.append(what)
        self._say(f"BREACH {what}")

    def _stop(self) -> None:
        for hand in self._hands.values():
            hand.kill()
        for bystander in self._bystanders:
            bystander.stop()
        self.report.served = {each.name: each.served for each in self._bystanders}
        self.report.longest_s = {each.name: each.longest_s for each in self._bystanders}
        self.report.peaks = self._peaks.summary()
        self.report.breaches += self._peaks.breaches()


def _last(log: Path) -> Counter[str]:
    """Return the attempts of a hand, as it last printed them."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    for line in reversed(lines):
        with suppress(ValueError):
            told: Mapping[str, int] = json.loads(line)
            return Counter(told)
    return Counter()

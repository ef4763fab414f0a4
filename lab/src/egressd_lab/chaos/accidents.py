"""Accidents of the device: each happens, and is over when its function returns.

None touches anything outside the lab.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final, Literal

import msgspec

from egressd.model.errors import Failed
from egressd_lab.chaos.foreign import ForeignSoftware
from egressd_lab.lab import Lab
from egressd_lab.wallclock import READ_AFTER_S, WallClock

NETD: Final = "egressd.app netd"
API: Final = "egressd.app api"
WORKER: Final = "egressd.netd.engine.worker"
START_S: Final = 30.0
_OURS: Final = re.compile(r"lookup (\d+) proto 230")
"""Finds the routing tables of egressd's policy rules, which carry that protocol."""
_JUMPS: Final = tuple(timedelta(hours=h) for h in (-400 * 24, -24, -1, 0, 1, 24, 400 * 24))

Cuts = Literal["nobody", "kernel", "engine", "line", "everybody"]


class Accident(msgspec.Struct, frozen=True):
    """``cuts`` names the bystanders whose connections the accident may cut."""

    name: str
    happen: Callable[[], None]
    cuts: Cuts = "nobody"
    weight: int = 2
    is_kill: bool = False


class Accidents:
    """The accidents of one lab."""

    def __init__(
        self, lab: Lab, rng: Random, disk: Path, clock: WallClock, foreign: ForeignSoftware
    ) -> None:
        self._foreign = foreign
        self._lab = lab
        self._clock = clock
        self._rng = rng
        self._disk = disk
        self._filler = disk / "filler"

    def all(self) -> list[Accident]:
        """Return every accident."""
        lines = [Accident("kill a line's daemon", self._kill_line, "line", 8, is_kill=True)]
        return [
            *(lines if self._lab.line_servers else []),
            Accident("kill the api", lambda: self.kill(API), weight=4, is_kill=True),
            Accident("kill netd", lambda: self.kill(NETD), weight=4, is_kill=True),
            Accident("kill a worker", self.kill_worker, "engine", weight=4, is_kill=True),
            Accident("freeze a worker", self.freeze_worker, "engine"),
            Accident("freeze netd", lambda: self._freeze(NETD)),
            Accident("freeze the api", lambda: self._freeze(API)),
            Accident("kill all but the workers", self._kill_all, is_kill=True),
            Accident("kill the supervisor", self._kill_supervisor, is_kill=True),
            Accident("hand over to new processes", self._hand_over),
            Accident("stop and start", self._restart, "everybody"),
            # While netd is stopped or gone, nothing keeps the translation of flows.
            Accident("nft flush ruleset", self._flush_ruleset, "everybody", weight=4),
            Accident("delete the table", self._delete_table, "everybody"),
            Accident("flush policy rules", self._flush_rules, weight=4),
            Accident("flush an egress's routes", self._flush_routes),
            Accident("flush conntrack", self._flush_conntrack, "kernel"),
            *self._by_others(),
            Accident("delete the LAN's queues", self._delete_queues),
            Accident("another program filters the LAN", self._filter_the_lan),
            Accident("wan2 unplugged", self._unplug),
            Accident("wan2 set down", self._lower),
            Accident("wan2 silent", self._silence),
            Accident("wan2 deleted and made again", self._recreate),
            Accident("the LAN set down", self._lower_lan),
            Accident("a node dies and comes back", self._node_dies),
            Accident("the disk is full", self.fill_disk),
            Accident("the wall clock jumps", self._jump),
        ]

    def _by_others(self) -> list[Accident]:
        """Return accidents by other software on the router. Such software comes and goes in the
        kernel's hooks, so that kernel-routed connections may lose a packet, but no connection is
        cut.
        """
        by = self._foreign
        wireguard = [Accident("wg-quick up or down", by.wireguard, weight=4)]
        return [
            *(wireguard if by.has_wireguard else []),
            Accident("Docker's rules come or go", by.docker),
            Accident("firewalld's rules come or go", by.firewalld),
            Accident("SQM is set or removed", by.sqm, weight=4),
            Accident("servers take ports or leave them", by.servers),
            Accident("conntrack -D of a client", by.forget_a_client, "kernel"),
            Accident("nft flush table", by.flush_the_table, "everybody"),
        ]

    def kill(self, part: str) -> None:
        """Send SIGKILL to a process."""
        for pid in self._pids(part):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_worker(self) -> None:
        """Send SIGKILL to one of the engine's workers."""
        self._signal_one(self._lab.device.pids(WORKER), signal.SIGKILL)

    def freeze_worker(self) -> None:
        """Send SIGSTOP to one of the engine's workers, for good: netd has to notice."""
        self._signal_one(self._lab.device.pids(WORKER), signal.SIGSTOP)

    def empty_disk(self) -> None:
        """Make room on the disk again."""
        self._filler.unlink(missing_ok=True)

    def fill_disk(self) -> None:
        """Fill the data's disk to the last byte, until `empty_disk`."""
        with self._filler.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(65_536))

    def _kill_line(self) -> None:
        pids = [*self._lab.device.pids("pppd "), *self._lab.device.pids("xl2tpd ")]
        self._signal_one(pids, signal.SIGKILL)

    def _signal_one(self, pids: Sequence[int], number: signal.Signals) -> None:
        """Send a signal to one of the processes, chosen at random, if there are any."""
        if pids:
            with suppress(ProcessLookupError):
                os.kill(self._rng.choice(pids), number)

    def _pids(self, part: str) -> list[int]:
        deadline = time.monotonic() + START_S
        while not (pids := self._lab.device.pids(part)):
            if time.monotonic() > deadline:
                raise Failed(f"find {part}", "there is no such process")
            time.sleep(0.02)
        return pids

    def _freeze(self, part: str) -> None:
        pids = self._pids(part)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            if number == signal.SIGSTOP:
                self._for_a_while()

    def _kill_all(self) -> None:
        self._lab.device.kill()
        self._for_a_while()
        self._lab.device.program.start()

    def _kill_supervisor(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._lab.device.program.pid, signal.SIGKILL)
        while self._lab.device.program.running:
            time.sleep(0.01)
        self._for_a_while()
        self._lab.device.program.start()

    def _hand_over(self) -> None:
        os.kill(self._lab.device.program.pid, signal.SIGHUP)

    def _restart(self) -> None:
        self._lab.device.stop()
        self._for_a_while()
        self._lab.device.program.start()

    def _flush_ruleset(self) -> None:
        self._lab.router.run("nft", "flush", "ruleset")

    def _delete_table(self) -> None:
        self._lab.router.run("nft", "delete", "table", "inet", "egressd", check=False)

    def _flush_rules(self) -> None:
        for family in ("-4", "-6"):
            self._lab.router.run("ip", family, "rule", "flush")
            self._lab.router.run(
                "ip", family, "rule", "add", "priority", "32766", "lookup", "main", check=False
            )

    def _flush_routes(self) -> None:
        tables = _OURS.findall(self._lab.router.run("ip", "rule", "show").stdout)
        if tables:
            table = self._rng.choice(sorted(set(tables)))
            self._lab.router.run("ip", "route", "flush", "table", table, check=False)

    def _flush_conntrack(self) -> None:
        self._lab.router.run("conntrack", "-F")

    def _delete_queues(self) -> None:
        for place in ("root", "ingress", "clsact"):
            self._lab.router.run("tc", "qdisc", "del", "dev", "lan0", place, check=False)

    def _filter_the_lan(self) -> None:
        everything = ("u32", "match", "u32", "0", "0", "flowid", "1:1")
        self._lab.router.run("tc", "qdisc", "del", "dev", "lan0", "ingress", check=False)
        self._lab.router.run("tc", "qdisc", "add", "dev", "lan0", "ingress")
        self._lab.router.run(
            *("tc", "filter", "add", "dev", "lan0", "ingress", "protocol", "all", *everything)
        )
        self._for_a_while()
        self._lab.router.run("tc", "qdisc", "del", "dev", "lan0", "ingress")

    def _unplug(self) -> None:
        self._lab.wan(2).unplug()
        self._for_a_while()
        self._lab.wan(2).restore()

    def _lower(self) -> None:
        self._lab.wan(2).lower()
        self._for_a_while()
        self._lab.wan(2).restore()

    def _silence(self) -> None:
        self._lab.wan(2).silence()
        self._for_a_while()
        self._lab.wan(2).speak()

    def _recreate(self) -> None:
        self._lab.wan(2).delete()
        self._for_a_while()
        self._lab.wan(2).recreate()

    def _lower_lan(self) -> None:
        self._lab.router.run("ip", "link", "set", "lan0", "down")
        time.sleep(self._rng.uniform(0, 0.2))
        self._lab.router.run("ip", "link", "set", "lan0", "up")

    def _node_dies(self) -> None:
        node = self._lab.nodes["socks5-udp"]
        node.program.kill()
        self._for_a_while()
        self._lab.start_node(node)

    def _jump(self) -> None:
        self._clock.set(self._rng.choice(_JUMPS))
        time.sleep(READ_AFTER_S)

    def _for_a_while(self) -> None:
        time.sleep(self._rng.choice((0.05, 0.3, 1.0)))

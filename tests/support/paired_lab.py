"""A lab of two boxes, which are a pair: one site, one database, shared addresses."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from typing import Any, Final

from egressd.store.postgres.schema import add_member
from egressd_lab.capture import Capture
from egressd_lab.device import Device
from egressd_lab.lab import Lab
from egressd_lab.observed import Flow
from egressd_lab.spec import (
    LAN_ADDRESS,
    OWN_NAMESPACE,
    LabSpec,
    lan_address,
    sync_address,
    wan_plans,
)
from egressd_lab.wallclock import WallClock
from tests.support import postgres
from tests.support.device import SERVER, eventually

ROLES: Final = {1: postgres.MEMBER, 2: "egressd_box2"}
"""Box -> the role that it logs in as."""
DATABASE: Final = 0
"""The key of the database's clock among those of the boxes."""
PROGRAMS: Final = ("egressd", "keepalived", "conntrackd")
"""Parts of the command lines of a box's processes."""


def other(box: int) -> int:
    """Return the other box of two."""
    return 3 - box


def longest_gap(capture: Capture, token: str) -> float:
    """Return the seconds of the longest pause between two datagrams of a flood."""
    times = [packet.time_ns for packet in capture.packets(token) if not packet.outgoing]
    return max((later - one) / 1e9 for one, later in pairwise(times))


class PairedLab:
    """The lab, its two boxes, and their database. With `has_clocks` each has a clock of its own."""

    def __init__(self, lab: Lab, database: postgres.Server, *, has_clocks: bool = False) -> None:
        self.lab = lab
        self.database = database
        self.clocks = (
            {of: WallClock(lab.folder / f"clock{of}") for of in (DATABASE, *ROLES)}
            if has_clocks
            else {}
        )
        """Box, or `DATABASE` -> its wall clock."""
        self.boxes = {
            box: lab.install(box, self._settings(box), self._environment(box)) for box in ROLES
        }

    def start(self) -> None:
        """Make the site, and have both boxes in step, the first one active."""
        if self.clocks:
            self.database.stop()
            self.database.environment = self._environment(DATABASE)
            self.database.start()
        first, second = self.boxes.values()
        owner = self.database.conninfo(postgres.OWNER)
        first.run("cluster", "init", "--owner", owner, "--role", ROLES[1])
        first.start()
        ((key_id,),) = self.database.query("SELECT key_id FROM site")
        add_member(owner, site="home", key_id=key_id, member="box2", role=ROLES[2])
        self._give_key(first, second)
        eventually(lambda: self.active() == 1, 30)
        second.start()
        eventually(lambda: self.roles() == {1: "active", 2: "standby"}, 30)
        self.wait_for_one_token()

    def wait_for_one_token(self) -> None:
        """Wait until both boxes have one API token, and use it at both."""
        tokens: list[str] = []

        def is_one() -> bool:
            tokens[:] = [box.run("token", "show").strip() for box in self.boxes.values()]
            return len({*tokens}) == 1

        eventually(is_one, 30)
        for box, token in zip(self.boxes.values(), tokens, strict=True):
            box.api.token = token

    def mend(self) -> None:
        """Have both boxes run and in step again, whatever a test has done to them."""
        for box, device in self.boxes.items():
            self.lab.topology.power(box, is_on=True)
            self.signal(box, signal.SIGCONT)
            if not device.program.running:
                device.start()
        for device in self.boxes.values():
            device.wait_healthy()
        settled = ["active", "standby"]
        eventually(lambda: bool(self.active()) and sorted(self.roles().values()) == settled, 30)

    def _environment(self, of: int) -> dict[str, str]:
        # Times of files are as they are: netd gives one the machine's uptime.
        return {**self.clocks[of].environment, "NO_FAKE_STAT": "1"} if self.clocks else {}

    def _settings(self, box: int) -> dict[str, dict[str, object]]:
        spec, peer = self.lab.spec, other(box)
        shared = {wan.interface: wan.shared for wan in wan_plans(spec, box)}
        return {
            "cluster": {
                "database": self.database.conninfo(ROLES[box]),
                "site": "home",
                "member": f"box{box}",
            },
            "pair": {
                "lan": {
                    "interface": "lan0",
                    "own": str(lan_address(spec, box)),
                    "peer": str(lan_address(spec, peer)),
                },
                "sync": {
                    "interface": "sync0",
                    "own": str(sync_address(box)),
                    "peer": str(sync_address(peer)),
                },
                "shared": {"lan0": f"{LAN_ADDRESS}/24", **shared},
            },
        }

    @staticmethod
    def _give_key(first: Device, second: Device) -> None:
        """Give the second box the site's key, as `cluster join` does."""
        source, folder = first.data / "api", second.data / "api"
        shutil.copytree(
            source, folder, ignore=lambda _, names: [n for n in names if n != "site-key"]
        )
        for path in (folder, folder / "site-key"):
            found = (source / path.relative_to(folder)).stat()
            os.chown(path, found.st_uid, found.st_gid)
            path.chmod(found.st_mode & 0o777)

    def api(self, box: int, path: str) -> Any:
        """Return the data of a GET request to a box's own address."""
        return self.boxes[box].api.ask("GET", path).body["data"]

    def roles(self, asked: int = 1) -> dict[int, str]:
        """Return box -> its role, as the members of the site are reported by one of them."""
        members = {each["name"]: each["role"] for each in self.api(asked, "/ops/members")}
        return {box: members.get(f"box{box}", "") for box in ROLES}

    def shared(self, wan: int) -> str:
        """Return the shared address of a WAN."""
        return wan_plans(self.lab.spec)[wan - 1].shared

    def seen(self, client: int) -> str:
        """Return a client's address as seen outside, or nothing."""
        return self.lab.client(client).http(f"http://{SERVER}/", timeout=0.5).seen

    def problems(self, box: int) -> list[str]:
        """Return the problems that a box reports."""
        found: list[str] = self.boxes[box].api.ask("GET", "/ops/overview").body["problems"]
        return found

    def is_reported(self, box: int, text: str) -> bool:
        """True if a box reports a problem with that text."""
        return any(text in problem for problem in self.problems(box))

    def active(self) -> int:
        """Return the box that has all shared addresses; 0 if none has, or both have some."""
        found = self.holders()
        return next(iter(found)) if len(found) == 1 and all(found.values()) else 0

    def holders(self) -> dict[int, bool]:
        """Return each box that has shared addresses -> True if it has all of them."""
        shared = {str(LAN_ADDRESS), *(wan.shared for wan in wan_plans(self.lab.spec))}
        found = {}
        for box, router in enumerate(self.lab.routers, 1):
            shown = router.run("ip", "-4", "-o", "address", "show").stdout
            held = {address for address in shared if f" {address}/" in shown}
            if held:
                found[box] = held == shared
        return found

    def strangers(self, wan: int, capture: Capture) -> list[Flow]:
        """Return what arrived from a WAN with a source that neither box has there."""
        plans = [wan_plans(self.lab.spec, box)[wan - 1] for box in self.boxes]
        own = {plans[0].shared, *(plan.address for plan in plans)}
        return [
            flow
            for flow in capture.flows(outgoing=False)
            if flow.protocol != "arp" and ":" not in flow.source and flow.source not in own
        ]

    def refuse(self, box: int, *, is_refused: bool = True) -> None:
        """Have the database let a box log in no more, and end its connections; or let it in again.
        The database runs.
        """
        role = ROLES[box]
        self.database.query(f"ALTER ROLE {role} {'NOLOGIN' if is_refused else 'LOGIN'}")
        if is_refused:
            ending = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename"
            self.database.query(f"{ending} = '{role}'")

    def signal(self, box: int, number: signal.Signals, *parts: str) -> None:
        """Send a signal to the processes of a box whose command lines have one of `parts`; without
        any, to all that are egressd's and its daemons'.
        """
        for pid in (pid for part in parts or PROGRAMS for pid in self.boxes[box].pids(part)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    @contextmanager
    def frozen(self, box: int) -> Iterator[None]:
        """Stop all processes of a box for the block; its kernel goes on."""
        self.signal(box, signal.SIGSTOP)
        try:
            yield
        finally:
            self.signal(box, signal.SIGCONT)


@contextmanager
def paired_lab(
    clients: int = OWN_NAMESPACE,
    prepare: Callable[[Device, Lab], None] | None = None,
    *,
    has_clocks: bool = False,
) -> Iterator[PairedLab]:
    """Yield two boxes of which the first one is active. `prepare` is called with each one before it
    starts. `has_clocks` is as in `PairedLab`.
    """
    with (
        postgres.server() as database,
        Lab(LabSpec(boxes=2, clients=clients, nodes=("socks5",))) as lab,
    ):
        made = PairedLab(lab, database, has_clocks=has_clocks)
        if prepare is not None:
            for device in made.boxes.values():
                prepare(device, lab)
        try:
            made.start()
            yield made
        finally:
            for box in made.boxes:
                made.signal(box, signal.SIGCONT)

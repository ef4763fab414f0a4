"""keepalived and conntrackd of two boxes on one LAN, with the files that egressd writes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from ipaddress import IPv4Interface
from pathlib import Path

import pytest

from egressd.model.pair import Pair, PairLink, PairRole
from egressd.netd.cluster import flows, vrrp
from tests.support.netns import Namespace
from tests.support.pairs import PAIR

pytestmark = pytest.mark.lab

SHARED = {**PAIR.shared, "wan0": IPv4Interface("100.64.0.10/32")}
FLOW = (
    "conntrack --create --proto tcp --src 10.77.1.1 --dst 203.0.113.1 --sport 4000 --dport 80"
    " --state ESTABLISHED --timeout 300 --status ASSURED,SEEN_REPLY --mark 7"
)


def eventually(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.05)


class Box:
    """A box of the pair, in a namespace."""

    def __init__(self, space: Namespace, pair: Pair, folder: Path) -> None:
        self.space = space
        self.folder = folder
        self.roles: list[PairRole] = []
        folder.mkdir()
        (folder / vrrp.CONFIGURATION).write_text(vrrp.configuration(pair, folder))
        (folder / vrrp.CONFIGURATION).chmod(0o600)
        (folder / flows.CONFIGURATION).write_text(flows.configuration(pair, folder, []))
        (folder / vrrp.CHECK).write_text(vrrp.check(folder))
        (folder / vrrp.ALIVE).touch()
        self.live(3600)
        self.allow(may_be_active=False)
        os.mkfifo(folder / vrrp.FIFO, 0o600)
        self._pipe = os.open(folder / vrrp.FIFO, os.O_RDWR | os.O_NONBLOCK)
        self._rest = ""

    def allow(self, *, may_be_active: bool) -> None:
        (self.folder / vrrp.TRACK).write_text(vrrp.track(may_be_active=may_be_active))

    def live(self, ahead_s: float) -> None:
        """Have netd touch its file so many seconds from now; in the past, it is silent since."""
        moment = vrrp.uptime_s() + ahead_s
        os.utime(self.folder / vrrp.ALIVE, (moment, moment))

    def run(self, command: list[str]) -> None:
        """Run a daemon until the test has ended."""

        def run() -> None:
            with (self.folder / "log").open("a") as log:
                subprocess.run(command, stdout=log, stderr=log, check=False)

        self.space.start(run)

    def close(self) -> None:
        os.close(self._pipe)

    def hear(self) -> list[PairRole]:
        """Return all roles that keepalived has reported."""
        with suppress(BlockingIOError):
            self._rest += os.read(self._pipe, 65536).decode()
        *lines, self._rest = self._rest.split("\n")
        self.roles += [role for line in lines if (role := vrrp.role_of(line))]
        return self.roles

    def held(self) -> set[str]:
        """Return the shared addresses that are here."""
        shown = self.space.shell("ip -o -4 address show")
        return {name for name, address in SHARED.items() if f" {address.ip}/" in shown}


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[tuple[Box, Box]]:
    """Yield two boxes with a LAN, two WANs and a sync link; no daemon runs."""
    with ExitStack() as stack:
        one, other, switch = (stack.enter_context(Namespace()) for _ in range(3))
        for name in ("lan0", "wan0", "wan1"):
            switch.shell(f"ip link add {name} type bridge; ip link set {name} up")
            for number, box in enumerate((one, other)):
                box.cable(name, switch, f"{name}-{number}")
                switch.shell(f"ip link set {name}-{number} master {name}")
        one.cable("sync0", other, "sync0")
        made = []
        for own, peer, space in ((2, 3, one), (3, 2, other)):
            for name, network in (
                ("lan0", "10.77.0"),
                ("wan0", "100.64.0"),
                ("wan1", "100.64.1"),
                ("sync0", "192.168.77"),
            ):
                space.shell(f"ip address add {network}.{own}/24 dev {name}")
            lan, sync = PAIR.lan.own - 2, PAIR.sync.own - 1
            pair = replace(
                PAIR,
                lan=PairLink("lan0", lan + own, lan + peer),
                sync=PairLink("sync0", sync + own, sync + peer),
                shared=SHARED,
            )
            made.append(Box(space, pair, tmp_path / str(own)))
            stack.callback(made[-1].close)
        yield made[0], made[1]


def test_shared_addresses_follow_the_lease_and_the_lan(boxes: tuple[Box, Box]) -> None:
    one, other = boxes
    for box in boxes:
        box.run(vrrp.command(box.folder))
    eventually(lambda: all(box.hear()[-1:] == ["fault"] for box in boxes))
    assert one.held() == other.held() == set()

    one.allow(may_be_active=True)
    eventually(lambda: one.held() == SHARED.keys())
    eventually(lambda: one.hear()[-1] == "active")

    other.allow(may_be_active=True)
    eventually(lambda: other.hear()[-1] == "standby")
    assert other.held() == set()

    one.allow(may_be_active=False)
    eventually(lambda: other.held() == SHARED.keys() and one.held() == set())
    eventually(lambda: one.hear()[-1] == "fault")

    one.allow(may_be_active=True)
    eventually(lambda: one.hear()[-1] == "standby")
    assert "active" not in one.roles[one.roles.index("active") + 1 :]

    other.space.shell("ip link set lan0 down")
    eventually(lambda: one.held() == SHARED.keys() and other.held() == set())

    other.space.shell("ip link set lan0 up")
    eventually(lambda: other.hear()[-1] == "standby")
    one.live(-10)
    eventually(lambda: other.held() == SHARED.keys() and one.held() == set())
    one.live(3600)
    eventually(lambda: one.hear()[-1] == "standby")
    for box in boxes:
        log = (box.folder / "log").read_text()
        assert "nknown keyword" not in log
        assert "(Line" not in log


def test_a_flow_of_one_box_is_in_the_kernel_of_the_other(boxes: tuple[Box, Box]) -> None:
    one, other = boxes
    for box in boxes:
        box.run(flows.command(box.folder))
    shown = "conntrack --dump --proto tcp 2>/dev/null"
    assert other.space.shell(shown) == ""
    eventually((one.folder / "conntrackd.ctl").exists)
    eventually((other.folder / "conntrackd.ctl").exists)
    one.space.shell(FLOW)
    eventually(lambda: "sport=4000" in other.space.shell(shown))
    assert "mark=7" in other.space.shell(shown)
    one.space.shell(FLOW.replace("10.77.1.1", str(PAIR.lan.own)).replace("4000", "4001"))
    one.space.shell(FLOW.replace("4000", "4002"))
    eventually(lambda: "sport=4002" in other.space.shell(shown))
    assert "sport=4001" not in other.space.shell(shown)

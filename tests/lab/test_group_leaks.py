"""Attempts to make groups leak: clients of groups leave by members or not at all (P1, P2).

Clients flood while members come and go, processes are killed amid changes, other programs flush
what decides about groups, and devices pose as others. All upstreams are captured. Each flood has a
token that stands for the members at its time; it goes on for a while after each change.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from http.client import HTTPException
from typing import Any, Final

import pytest

from egressd.model.errors import Failed
from egressd_lab.capture import Capture
from egressd_lab.chaos.judge import Era, Judge
from egressd_lab.client import Client, Flood
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from egressd_lab.spec import LAN_ADDRESS, LabSpec
from tests.support.device import SERVER, add_nodes, clear, eventually, rule, send
from tests.support.fast_path import passed
from tests.support.leaks import exits_of

pytestmark = pytest.mark.lab

WEB: Final = f"http://{SERVER}/"
CHECK: Final = f"{WEB}generate_204"
RATES: Final = {"udp": 200, "icmp": 50, "tcp": 50}
"""Packets a second of each client."""
PORTS: Final = {"udp": 7, "icmp": 0, "tcp": 9}
"""Datagrams are answered: the fast path takes such flows."""
LATE: Final = 100
"""Packets that a flood goes on to send after a change: half a second of them."""
BACK_S: Final = 30.0
STRATEGIES: Final = {"first": "fallback", "own": "sticky", "part": "spread", "ranges": "sticky"}
"""The groups, by the strategies that they have."""
CLIENTS: Final = dict(enumerate(STRATEGIES, 1))
"""Client -> its group. The last one has a CIDR rule."""
ALL: Final = ("Interface:wan2", "ss", "Interface:wan3", "socks5-udp", "DIRECT")
OTHERS: Final = dict(enumerate(ALL, len(CLIENTS) + 2))
"""Silent clients whose rules name members: all of these stay in use, whatever groups leave."""


@pytest.fixture(scope="module")
def shared(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(clients=max(OTHERS), wans=3, nodes=("ss", "socks5-udp"))) as lab:
        lab.start_egressd()
        yield lab


@pytest.fixture
def lab(shared: Lab) -> Iterator[Lab]:
    add_nodes(shared)
    for name, strategy in STRATEGIES.items():
        make(shared, name, ALL[:2], strategy)
    for client, group in CLIENTS.items():
        address = shared.client(client).address
        rule(shared, address if group != "ranges" else f"{address}/31", f"Group_{group}")
    for client, target in OTHERS.items():
        send(shared, client, target)
    yield shared
    clear(shared)
    for name in STRATEGIES:
        shared.api.ask("DELETE", f"/ops/groups/{name}")


def make(lab: Lab, name: str, members: Sequence[str], strategy: str) -> None:
    body = {
        "name": name,
        "members": members,
        "strategy": strategy,
        "check_url": CHECK,
        "check_interval_s": 5,
    }
    made = lab.api.ask("POST", "/ops/groups", body)
    assert made.status == 201, made.body


def alter(lab: Lab, name: str, **settings: Any) -> None:
    answer = lab.api.ask("PATCH", f"/ops/groups/{name}", settings)
    assert answer.status == 200, answer.body


class Floods:
    """Clients that flood, and what the captures may show of each."""

    def __init__(self, lab: Lab, capture: Capture, clients: Mapping[int, str]) -> None:
        """`clients`: client -> its group."""
        self._lab = lab
        self._capture = capture
        self._clients = clients
        wans = {wan.far: wan.address for wan in lab.wans}
        self._judge = Judge(wans, {node.link: node.address for node in lab.nodes.values()})
        self._floods: dict[int, list[Flood]] = {}
        self._eras: dict[int, Era] = {}
        self.sent = 0

    def begin(self, client: int) -> None:
        """Let a client flood anew, by the present members of its group."""
        self._end(client)
        token, its = new_token(), self._lab.client(client)
        exits = exits_of(self._lab, f"Group_{self._clients[client]}")
        self._eras[client] = Era(client=its.name, token=token, exits=exits)
        self._judge.eras[token] = self._eras[client]
        self._floods[client] = [
            its.flood(token, kind=kind, rate=rate, port=PORTS[kind]) for kind, rate in RATES.items()
        ]

    def begin_all(self) -> None:
        """Let all clients flood anew."""
        for client in self._clients:
            self.begin(client)

    def change(self, action: Callable[[], object], exits: Mapping[int, frozenset[str]]) -> None:
        """Take an action after whose answer clients may leave by `exits` alone; let them go on for
        a while, and then flood anew.
        """
        for client, allowed in exits.items():
            self._eras[client].begin_change(allowed, time.time_ns())
        action()
        for client in exits:
            self._eras[client].end_change(time.time_ns())
        self.go_on()
        for client in exits:
            self.begin(client)

    def try_change(self, action: Callable[[], object], exits: Mapping[int, frozenset[str]]) -> None:
        """Take an action that may fail, in which case everything is as before."""
        for client, allowed in exits.items():
            self._eras[client].begin_change(self._eras[client].exits | allowed, time.time_ns())
        action()
        self.begin_all()
        self.go_on()

    def go_on(self) -> None:
        """Wait until each flood has sent some more packets."""
        floods = [each for group in self._floods.values() for each in group[:1]]
        goals = [flood.report().sent + LATE for flood in floods]
        for flood, goal in zip(floods, goals, strict=True):
            eventually(partial(_has_sent, flood, goal))

    def resume(self, seconds: float) -> None:
        """Wait until datagrams of all floods leave again."""
        for client, era in self._eras.items():
            if era.exits:
                before = self._datagrams(era.token)
                eventually(partial(self._is_more, era.token, before), seconds)
            assert self._clients[client]

    def every_way(self) -> None:
        """Let each client try each way out that it knows, IPv6 among them."""
        for client, era in self._eras.items():
            self._lab.client(client).every_way(era.token, timeout=0.5)

    def reach(self) -> bool:
        """True if requests of each client leave by members, or are blocked if there are none."""
        return all(
            _leaves_by(self._lab.client(client), era.exits) for client, era in self._eras.items()
        )

    def close(self) -> list[str]:
        """End the floods, and return the packets that left where they should not have."""
        for client in [*self._floods]:
            self._end(client)
        return [breach.what for breach in self._judge.judge(self._capture.read().flows)]

    def _end(self, client: int) -> None:
        self.sent += sum(flood.stop().sent for flood in self._floods.pop(client, ()))

    def _datagrams(self, token: str) -> int:
        flows = self._capture.flows(token, protocol="udp", outgoing=False)
        return sum(flow.packets for flow in flows)

    def _is_more(self, token: str, before: int) -> bool:
        return self._datagrams(token) > before


def _has_sent(flood: Flood, goal: int) -> bool:
    return flood.report().sent >= goal


def _leaves_by(client: Client, exits: frozenset[str]) -> bool:
    reply = client.http(WEB, timeout=1)
    return reply.seen in exits if exits else not reply.ok


@contextmanager
def flooding(lab: Lab, clients: Mapping[int, str]) -> Iterator[Floods]:
    with lab.internet.capture() as capture:
        capture.prove()
        floods = Floods(lab, capture, clients)
        floods.begin_all()
        try:
            yield floods
        finally:
            leaks = floods.close()
        assert floods.sent > 100
        assert not leaks, "\n".join(leaks)


def exits(lab: Lab, members: Sequence[str]) -> frozenset[str]:
    return frozenset[str]().union(*(exits_of(lab, member) for member in members))


def test_p1_a_removed_member_carries_nothing_more(lab: Lab) -> None:
    draw = random.Random(11)
    with flooding(lab, CLIENTS) as floods:
        eventually(floods.reach, BACK_S)
        eventually(lambda: passed(lab, 1).up_packets > LATE, BACK_S)
        for step in range(10):
            members = draw.sample(ALL, draw.randrange(1, 4)) if step % 5 != 4 else []
            policy = draw.choice(("keep", "cut", "drain"))

            def change(members: Sequence[str] = members, policy: str = policy) -> None:
                for name in STRATEGIES:
                    alter(lab, name, members=members, on_switch=policy)

            floods.change(change, dict.fromkeys(CLIENTS, exits(lab, members)))
            floods.every_way()
            eventually(floods.reach, BACK_S)


@pytest.mark.parametrize(
    "part", ["egressd.app netd", "egressd.app api", "egressd.netd.engine.worker"]
)
def test_p1_a_process_killed_amid_a_change_of_members_leaks_nothing(lab: Lab, part: str) -> None:
    draw = random.Random(part)
    with flooding(lab, CLIENTS) as floods:
        eventually(floods.reach, BACK_S)
        for _ in range(3):
            members = draw.sample(ALL, draw.randrange(1, 4))
            late_s = draw.uniform(0.0, 0.2)

            def change(members: Sequence[str] = members, late_s: float = late_s) -> None:
                begun = threading.Event()
                killing = threading.Thread(target=_kill, args=(lab, part, begun, late_s))
                killing.start()
                begun.set()
                with suppress(Failed, OSError, HTTPException):
                    for name in STRATEGIES:
                        lab.api.ask("PATCH", f"/ops/groups/{name}", {"members": members})
                killing.join()
                lab.device.wait_healthy()

            floods.try_change(change, dict.fromkeys(CLIENTS, exits(lab, members)))
            eventually(floods.reach, BACK_S)


def _kill(lab: Lab, part: str, begun: threading.Event, late_s: float) -> None:
    pids = lab.device.pids(part)
    begun.wait()
    time.sleep(late_s)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    "command",
    [
        "flush map inet egressd elected",
        "flush map inet egressd kept",
        "flush map inet egressd slots",
        "flush set inet egressd members",
        "flush set inet egressd alive",
        "flush chain inet egressd group",
        "flush chain inet egressd member",
        "flush table inet egressd",
        "delete table inet egressd",
    ],
)
def test_p1_flushed_parts_of_groups_leak_nothing(lab: Lab, command: str) -> None:
    for name in STRATEGIES:
        alter(lab, name, members=["Interface:wan2", "Interface:wan3", "ss"])
    with flooding(lab, CLIENTS) as floods:
        eventually(floods.reach, BACK_S)
        for _ in range(3):
            lab.router.run("nft", *command.split())
            floods.resume(2.0)
            eventually(floods.reach, BACK_S)


def test_p1_a_member_whose_interface_is_made_anew_leaks_nothing(lab: Lab) -> None:
    """The kernel gives the new interface another index, and may give its old one to another."""
    members = ["Interface:wan2", "Interface:wan3"]
    for name in STRATEGIES:
        alter(lab, name, members=members)
    with flooding(lab, CLIENTS) as floods:
        eventually(floods.reach, BACK_S)
        for number in (2, 3, 2):
            lab.wan(number).delete()
            eventually(floods.reach, BACK_S)
            lab.wan(number).recreate()
            lab.wan(5 - number).lower()
            eventually(floods.reach, BACK_S)
            lab.wan(5 - number).restore()
            floods.go_on()


def test_p1_members_found_by_name_are_none_once_they_are_renamed(lab: Lab) -> None:
    (node_id,) = (n["id"] for n in lab.api.get("/nodes")["data"] if n["name"] == "ss")
    draft = lab.nodes["ss"].draft()
    for name in STRATEGIES:
        alter(lab, name, members=["Interface:wan3"], filter="^ss$")
    with flooding(lab, CLIENTS) as floods:
        eventually(floods.reach, BACK_S)
        for name, allowed in (("other", ()), ("ss", ("ss",)), ("other", ())):
            renamed = {**draft, "name": name}
            floods.change(
                partial(lab.api.put, f"/nodes/{node_id}", renamed),
                dict.fromkeys(CLIENTS, exits(lab, ["Interface:wan3", *allowed])),
            )
            eventually(floods.reach, BACK_S)
    lab.api.put(f"/nodes/{node_id}", draft)


def test_p1_a_groups_rule_that_is_bound_is_of_no_other_device(lab: Lab) -> None:
    owner, other = lab.client(1), lab.client(2)
    alter(lab, "first", members=["Interface:wan2", "Interface:wan3"])
    owner.host.run("ping", "-c1", "-W1", str(LAN_ADDRESS))
    mac = owner.host.mac("eth0").hex(":")
    eventually(lambda: mac in lab.device.run("devices", "list"), BACK_S)
    lab.device.run("devices", "bind", mac)
    theirs = new_token()
    other.host.run("ip", "address", "add", f"{owner.address}/32", "dev", "eth0")
    try:
        with flooding(lab, {1: "first"}) as floods, lab.internet.capture() as capture:
            capture.prove()
            posing = [
                Client(other.host, owner.place).flood(theirs, kind=kind, rate=300) for kind in RATES
            ]
            for members in (["Interface:wan3"], ["ss", "Interface:wan2"], ["Interface:wan2"]):
                floods.change(
                    partial(alter, lab, "first", members=members), {1: exits(lab, members)}
                )
            (netd,) = lab.device.pids("egressd.app netd")
            os.kill(netd, signal.SIGKILL)
            lab.device.wait_healthy()
            floods.go_on()
            assert sum(flood.stop().sent for flood in posing) > 100
            assert capture.flows(theirs) == []
    finally:
        other.host.run("ip", "address", "del", f"{owner.address}/32", "dev", "eth0")
        lab.device.run("devices", "unbind", mac)


def test_p1_a_group_in_one_arm_use_leaks_nothing(namespaces: None) -> None:
    with Lab(LabSpec(one_arm=True, wans=1, nodes=("ss",), clients=5)) as lab:
        lab.start_egressd()
        add_nodes(lab)
        send(lab, 4, "ss")
        send(lab, 5, "Interface:lan0")
        clients = {1: "first", 2: "own", 3: "part"}
        for client, name in clients.items():
            make(lab, name, ["ss", "Interface:lan0"], STRATEGIES[name])
            send(lab, client, f"Group_{name}")
        node = lab.nodes["ss"]

        def change(members: Sequence[str]) -> None:
            for name in clients.values():
                alter(lab, name, members=members)

        with flooding(lab, clients) as floods:
            eventually(floods.reach, BACK_S)
            for _ in range(2):
                for members in (["Interface:lan0"], ["ss"], [], ["ss", "Interface:lan0"]):
                    allowed = exits(lab, members)
                    floods.change(partial(change, members), dict.fromkeys(clients, allowed))
                    floods.every_way()
                    eventually(floods.reach, BACK_S)
                lab.router.run("nft", "flush", "ruleset")
                node.program.kill()
                eventually(floods.reach, BACK_S)
                (netd,) = lab.device.pids("egressd.app netd")
                os.kill(netd, signal.SIGKILL)
                lab.start_node(node)
                lab.device.wait_healthy()
                eventually(floods.reach, BACK_S)

"""A node, a VPN line and a WAN as the ordered members of groups, while each dies and comes back.

All packets of the clients leave by members, new flows by the first member that works or by the one
that `failback` keeps, and none leave while no member works (P1, P2 of the promises). A pair of veth
interfaces stands in for the line (`tests.lab.stand_in_line`).

With ``EGRESSD_GROUPS=long`` in the environment there is a round of 200 changes and 1,000,000
captured packets, too, which takes eleven minutes:
``EGRESSD_GROUPS=long pytest -s --timeout=0 tests/lab/test_group_order.py``.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

import pytest

from egressd_lab.capture import Capture
from egressd_lab.chaos.judge import Era, Judge
from egressd_lab.client import Flood
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from egressd_lab.spec import LabSpec
from tests.lab import stand_in_line as line
from tests.support.device import SERVER, add_nodes, eventually, rule, send

pytestmark = pytest.mark.lab

CHECK: Final = f"http://{SERVER}/generate_204"
INTERVAL_S: Final = 5
"""Seconds between checks, the fewest that a group takes."""
SOON_S: Final = 30.0
GROUPS: Final = {"kept": "keep", "cut": "cut"}
"""Groups of the same members, with the fate of open connections when another one is chosen."""
RATES: Final = {"udp": 1000, "icmp": 50, "tcp": 50}
"""Packets a second of each client."""
IS_LONG: Final = os.environ.get("EGRESSD_GROUPS") == "long"
CHANGES: Final = 200
PACKETS: Final = 1_000_000
MINUTE_S: Final = 60.0


class Way(NamedTuple):
    """A member of the groups, and how it dies and comes back."""

    target: str
    exit: str
    """The address that servers see."""
    dies: Sequence[Callable[[], object]]
    """Ways to die."""
    returns: Sequence[Callable[[], object]]
    """The return from each of them."""


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(clients=3, nodes=("ss",))) as lab:
        lab.start_egressd()
        add_nodes(lab)
        lab.api.post("/vpn-lines", line.DRAFT)
        line.up(lab)
        for name, on_switch in GROUPS.items():
            body = {
                "name": name,
                "strategy": "fallback",
                "on_switch": on_switch,
                "members": [way.target for way in ways_of(lab)],
                "check_url": CHECK,
                "check_interval_s": INTERVAL_S,
            }
            made = lab.api.ask("POST", "/ops/groups", body)
            assert made.status == 201, made.body
        send(lab, 1, "Group_kept")
        rule(lab, f"{lab.client(2).address}/31", "Group_cut")
        yield lab


def ways_of(lab: Lab) -> list[Way]:
    """Return the members in their order: the node, the line and the second WAN."""
    (node,), wan = lab.nodes.values(), lab.wan(2)
    return [
        Way(
            node.name,
            node.address,
            [node.program.kill, lambda: node.program.signal(signal.SIGSTOP)],
            [lambda: lab.start_node(node), lambda: node.program.signal(signal.SIGCONT)],
        ),
        Way(line.TARGET, line.ADDRESS, [lambda: line.down(lab)], [lambda: line.up(lab)]),
        Way(
            f"Interface:{wan.interface}",
            wan.address,
            [wan.unplug, wan.silence],
            [wan.restore, wan.speak],
        ),
    ]


class Members:
    """The members, and two clients that flood meanwhile, each in a group of its own."""

    def __init__(self, lab: Lab, capture: Capture) -> None:
        self._lab = lab
        self._capture = capture
        self.ways = ways_of(lab)
        self.changes = 0
        """Deaths and returns until now."""
        self._returns: dict[str, Callable[[], object]] = {}
        """Member that is dead -> its return."""
        self._current = self.ways[0]
        self._failback: int | str = "at_once"
        far_ends = {wan.far: wan.address for wan in lab.wans} | {line.LINK: line.ADDRESS}
        self._judge = Judge(far_ends, {node.link: node.address for node in lab.nodes.values()})
        self._clients = [lab.client(number) for number in (1, 2)]
        self._floods: list[Flood] = []
        self._tokens: list[str] = []
        """The tokens of the present floods, by client."""

    def go_back(self, failback: int | str) -> None:
        """Let clients go back to a better member by that setting of their groups."""
        self._failback = failback
        for name in GROUPS:
            answer = self._lab.api.ask("PATCH", f"/ops/groups/{name}", {"failback": failback})
            assert answer.status == 200, answer.body
        self._settle()

    def die(self, place: int, how: int = 0) -> None:
        """Let the member at that place die, in one of its ways."""
        way = self.ways[place]
        way.dies[how]()
        self._returns[way.target] = way.returns[how]
        self.changes += 1
        self._settle()

    def live(self, place: int) -> None:
        """Let the member at that place come back."""
        self._returns.pop(self.ways[place].target)()
        self.changes += 1
        self._settle()

    def change(self, draw: random.Random) -> None:
        """Let any member die, or come back if it is dead."""
        place = draw.randrange(len(self.ways))
        way = self.ways[place]
        if way.target in self._returns:
            self.live(place)
        else:
            self.die(place, draw.randrange(len(way.dies)))

    def return_late(self, place: int) -> None:
        """Let the member at that place come back, and clients return to it after a minute."""
        began = time.monotonic()
        self.live(place)
        self._current = self.ways[place]
        eventually(lambda: self._leave_by(self._current.exit), MINUTE_S + SOON_S)
        assert time.monotonic() - began > MINUTE_S
        self._settle()

    def _settle(self) -> None:
        """Wait until new flows leave by the member that they should, and the device knows which
        members live; then let each client flood by another flow.
        """
        living = [way for way in self.ways if way.target not in self._returns]
        if living and (self._failback == "at_once" or self._current not in living):
            self._current = living[0]
        wanted = self._current.exit if living else ""
        eventually(lambda: self._leave_by(wanted), SOON_S)
        eventually(partial(self._is_known, {way.target for way in living}), SOON_S)
        assert self._leave_by(wanted), "it does not go on so"
        self._flood_anew()
        if wanted:
            eventually(lambda: all(self._floods_by(token, wanted) for token in self._tokens))

    def _leave_by(self, exit_: str) -> bool:
        """True if requests of both clients leave by `exit_`; if that is empty, if all fail."""
        replies = [client.http(f"http://{SERVER}/", timeout=1) for client in self._clients]
        return all(reply.seen == exit_ and reply.ok == bool(exit_) for reply in replies)

    def _is_known(self, alive: set[str]) -> bool:
        """True if the device knows of each member whether it is one of `alive`."""
        return all(
            bool(each["is_alive"]) == (each["target"] in alive)
            for name in GROUPS
            for each in self._lab.api.ask("GET", f"/ops/groups/{name}").body["resolved"]
        )

    def _flood_anew(self) -> None:
        self._stop_floods()
        exits = frozenset(way.exit for way in self.ways)
        for client in self._clients:
            token = new_token()
            self._judge.eras[token] = Era(client=client.name, token=token, exits=exits)
            self._floods += [client.flood(token, kind=kind, rate=r) for kind, r in RATES.items()]
            self._tokens.append(token)

    def _stop_floods(self) -> None:
        for flood in self._floods:
            flood.stop()
        self._floods, self._tokens = [], []

    def _floods_by(self, token: str, exit_: str) -> bool:
        return any(flow.source == exit_ for flow in self._capture.flows(token))

    def count(self) -> int:
        """Return the number of captured packets that clients sent."""
        flows = self._capture.read().flows
        return sum(f.packets for f in flows if f.token in self._judge.eras and not f.outgoing)

    def close(self) -> list[str]:
        """Let all members live, and end the floods. Return the packets that left by no member."""
        for target in [*self._returns]:
            self._returns.pop(target)()
        self._stop_floods()
        return [breach.what for breach in self._judge.judge(self._capture.read().flows)]


@pytest.fixture
def members(lab: Lab) -> Iterator[Members]:
    with lab.internet.capture() as capture:
        capture.prove()
        members = Members(lab, capture)
        try:
            members.go_back("at_once")
            yield members
        finally:
            leaks = members.close()
        assert not leaks, "\n".join(leaks)


def test_p1_node_line_and_wan_serve_in_their_order_as_they_die_and_return(
    members: Members,
) -> None:
    node, vpn, wan = range(3)
    members.die(node)
    members.die(vpn)
    members.die(wan)
    members.live(vpn)
    members.go_back("never")
    members.live(node)
    members.die(vpn)
    assert members.count() > 1000


@pytest.mark.slow
@pytest.mark.skipif(not IS_LONG, reason="it takes eleven minutes: EGRESSD_GROUPS=long")
def test_p1_a_million_packets_leave_by_members_through_200_changes(members: Members) -> None:
    draw = random.Random(39)
    node, vpn, _ = range(3)
    began = time.monotonic()
    members.go_back(1)
    members.die(node)
    members.return_late(node)
    members.die(vpn)
    members.die(node)
    members.return_late(node)
    members.go_back("never")
    while members.changes < CHANGES // 4:
        members.change(draw)
    members.go_back("at_once")
    while members.changes < CHANGES or members.count() < PACKETS:
        members.change(draw)
    print(
        f"{members.changes} changes, {members.count()} packets by members and none by others,"
        f" {time.monotonic() - began:.0f} s"
    )

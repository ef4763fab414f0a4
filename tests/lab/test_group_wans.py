"""Groups of WANs while each of these dies and comes back under floods: no flow is on two WANs.

All packets leave by members, in their order, and by none while none works (P1, P2). A connection's
packets leave by the WAN that it began with and by no other one, also after that has died; with
`on_switch` = `keep` it goes on while its WAN lives, whatever the group chooses. Datagrams from one
port leave by one WAN until it dies or, with `cut`, another one is chosen, and from then on by that
alone.

With ``EGRESSD_GROUPS=long`` in the environment there is a round of 200 changes and 1,000,000
captured packets, too: ``EGRESSD_GROUPS=long pytest -s --timeout=0 tests/lab/test_group_wans.py``.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import pytest

from egressd_lab.capture import Capture
from egressd_lab.chaos.judge import Era
from egressd_lab.client import Connection
from egressd_lab.lab import Lab
from egressd_lab.observed import Flow
from egressd_lab.packets import new_token
from egressd_lab.spec import LabSpec
from tests.lab.dying_members import CHANGES, GROUPS, INNER, PACKETS, Members, Way, make_groups
from tests.support.fast_path import passed

pytestmark = pytest.mark.lab

WANS: Final = (2, 3, 4)
"""Numbers of the members, in their order. The first WAN, the default route, is none."""
ECHO: Final = 7
"""A port whose datagrams are answered: the fast path takes such flows."""
UNPLUGGED, SILENT, LOWERED, PULLED = range(4)
HELD_MAX: Final = 12
"""Connections that are used at the same time."""
ANSWER_S: Final = 1.0
QUEUED_NS: Final = 4_000_000_000
"""Nanoseconds for which packets may wait until their next hop's address is known: the kernel asks
for it three times, a second apart (mcast_solicit and retrans_time_ms, arp(7))."""
IS_LONG: Final = os.environ.get("EGRESSD_GROUPS") == "long"


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(clients=3, wans=max(WANS), nodes=())) as lab:
        lab.start_egressd()
        make_groups(lab, ways_of(lab))
        yield lab


def ways_of(lab: Lab) -> list[Way]:
    return [
        Way(
            f"Interface:{wan.interface}",
            wan.address,
            [wan.unplug, wan.silence, wan.lower, wan.delete],
            [wan.restore, wan.speak, wan.restore, wan.recreate],
        )
        for wan in map(lab.wan, WANS)
    ]


class Held(NamedTuple):
    """An open connection of a client."""

    group: str
    token: str
    """The text of its lines."""
    way: Way
    """The member that it began with."""
    connection: Connection


class WanFlows(Members):
    """The WANs, and the flows that clients have through them."""

    def __init__(self, lab: Lab, capture: Capture) -> None:
        links = {wan.far: wan.address for wan in lab.wans}
        super().__init__(lab, capture, ways_of(lab), links, udp_port=ECHO)
        self._far_ends = {address: far for far, address in links.items()}
        self._courses: dict[str, list[str]] = {}
        """Token of a flood between two states with living members -> the exits of its datagrams, in
        this order."""
        self._held: list[Held] = []
        self._homes: dict[str, str] = {}
        """Token of a connection -> the only interface for its packets."""

    @property
    def flows(self) -> int:
        """Connections and flows of datagrams until now."""
        return len(self._homes) + len(self._courses)

    def settle(self) -> None:
        """Wait as other members do; see which connections go on, and open new ones."""
        ended = self._tokens
        super().settle()
        alive = [way.exit for way in self.ways if way.target not in self._returns]
        now = self._current.exit if alive else ""
        for group, token in zip(GROUPS, ended, strict=bool(ended)):
            course = self._courses.get(token, [now])
            must_leave = GROUPS[group] == "cut" or course[-1] not in alive
            if not now:
                # They may have gone on by a member whose link is up and whose next hop is silent.
                self._courses.pop(token, None)
            elif must_leave and course[-1] != now:
                course.append(now)
        self._use_held()
        if now:
            self._courses |= {token: [now] for token in self._tokens}
            self._hold_more()

    def _use_held(self) -> None:
        for held in [*self._held]:
            is_alive = held.way.target not in self._returns
            reply = held.connection.exchange(held.token, timeout=ANSWER_S)
            if is_alive and GROUPS[held.group] == "keep":
                assert reply.ok, f"a connection by {held.way.target} was lost: {reply.error}"
            assert is_alive or not reply.ok, f"{held.way.target} is dead, and answers"
            if not reply.ok:  # the client sends it again and again
                self._held.remove(held)

    def _hold_more(self) -> None:
        for group, client in zip(GROUPS, self._clients, strict=True):
            token, connection = new_token(), client.connect()
            exits = frozenset([self._current.exit])
            self._judge.eras[token] = Era(client=client.name, token=token, exits=exits)
            self._homes[token] = self._far_ends[self._current.exit]
            assert connection.exchange(token).ok
            self._held.append(Held(group, token, self._current, connection))
        for held in self._held[:-HELD_MAX]:
            held.connection.close()
        del self._held[:-HELD_MAX]

    def close(self) -> list[str]:
        """End all, and return the packets that left where they should not have."""
        leaks = super().close()
        flows = by_token(self._capture.read().flows)
        for token, home in self._homes.items():
            seen = {flow.interface for flow in flows[token]}
            if seen != {home}:
                leaks.append(f"a connection by {home} was seen on {seen} ({token})")
        for token, course in self._courses.items():
            datagrams = [flow for flow in flows.get(token, ()) if flow.protocol == "udp"]
            exits = [flow.source for flow in datagrams]
            later = iter(course)
            if not all(exit_ in later for exit_ in exits):
                leaks.append(f"datagrams left by {exits}, and not by {course} ({token})")
            echoes = [flow for flow in flows.get(token, ()) if flow.protocol == "icmp"]
            leaks += overlaps(datagrams) + overlaps(echoes)
        return leaks


def by_token(flows: Iterable[Flow]) -> Mapping[str, Sequence[Flow]]:
    """Return the flows of clients by token, each in the order of their first packets."""
    found: dict[str, list[Flow]] = {}
    for flow in sorted(flows, key=lambda each: each.first_ns):
        if flow.token and not flow.outgoing and flow.interface != INNER:
            found.setdefault(flow.token, []).append(flow)
    return found


def overlaps(flows: Sequence[Flow]) -> list[str]:
    """Return the faults of packets of one port that left by two WANs in turns."""
    return [
        f"{before.protocol} by {before.interface} until {late / 1e6:.0f} ms after the first by"
        f" {after.interface} ({before.token})"
        for before, after in pairwise(flows)
        if (late := before.last_ns - after.first_ns) > QUEUED_NS
    ]


@pytest.fixture
def flows(lab: Lab) -> Iterator[WanFlows]:
    with lab.internet.capture() as capture:
        capture.prove()
        flows = WanFlows(lab, capture)
        try:
            flows.go_back("at_once")
            yield flows
        finally:
            leaks = flows.close()
        assert not leaks, "\n".join(leaks)


def test_p1_no_flow_is_on_two_wans_as_they_die_and_return(lab: Lab, flows: WanFlows) -> None:
    first, second, third = range(3)
    before = passed(lab, 1).up_packets
    flows.die(first, UNPLUGGED)
    flows.live(first)
    flows.die(first, SILENT)
    flows.die(second, PULLED)
    flows.die(third, LOWERED)
    flows.live(second)
    flows.go_back("never")
    flows.live(first)
    flows.die(second, SILENT)
    assert flows.count() > 1000
    assert passed(lab, 1).up_packets - before > 1000


@pytest.mark.slow
@pytest.mark.skipif(not IS_LONG, reason="it takes many minutes: EGRESSD_GROUPS=long")
def test_p1_no_flow_is_on_two_wans_through_200_changes(flows: WanFlows) -> None:
    draw = random.Random(39)
    began = time.monotonic()
    flows.go_back(1)
    flows.die(0, SILENT)
    flows.return_late(0)
    flows.go_back("never")
    while flows.changes < CHANGES // 4:
        flows.change(draw)
    flows.go_back("at_once")
    while flows.changes < CHANGES or flows.count() < PACKETS:
        flows.change(draw)
    print(
        f"{flows.changes} changes, {flows.count()} packets of {flows.flows} flows,"
        f" none of them on two WANs, {time.monotonic() - began:.0f} s"
    )

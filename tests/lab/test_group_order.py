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
from collections.abc import Iterator
from typing import Final

import pytest

from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.lab import stand_in_line as line
from tests.lab.dying_members import CHANGES, PACKETS, Members, Way, make_groups
from tests.support.device import add_nodes

pytestmark = pytest.mark.lab

IS_LONG: Final = os.environ.get("EGRESSD_GROUPS") == "long"


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(clients=3, nodes=("ss",))) as lab:
        lab.start_egressd()
        add_nodes(lab)
        lab.api.post("/vpn-lines", line.DRAFT)
        line.up(lab)
        make_groups(lab, ways_of(lab))
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


@pytest.fixture
def members(lab: Lab) -> Iterator[Members]:
    with lab.internet.capture() as capture:
        capture.prove()
        links = {wan.far: wan.address for wan in lab.wans} | {line.LINK: line.ADDRESS}
        members = Members(lab, capture, ways_of(lab), links)
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

"""P1 to P4 of the promises while the wall clock jumps by more than a year, and back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta

import pytest

from egressd_lab.device import API_PREFIX
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from egressd_lab.wallclock import WallClock
from tests.support.device import add_nodes, eventually, send

pytestmark = pytest.mark.lab

YEAR = timedelta(days=400)


@pytest.fixture(scope="module")
def clocked(namespaces: None) -> Iterator[tuple[Lab, WallClock]]:
    with Lab(LabSpec(nodes=("socks5-udp",), clients=3)) as lab:
        clock = WallClock(lab.folder / "clock")
        lab.start_egressd(environment=clock.environment)
        add_nodes(lab)
        yield lab, clock


def seen(lab: Lab, number: int) -> str:
    """Return a client's address as seen outside, or nothing."""
    return lab.client(number).udp_echo("where am I?", timeout=0.5).seen


def told_year(lab: Lab) -> str:
    """Return egressd's year: that of the last line of its log."""
    lab.api.ask("POST", f"{API_PREFIX}/rules", {})  # refused, and logged
    return lab.device.program.tail().rpartition('"timestamp": "')[2][:4]


@pytest.mark.parametrize("jump", [YEAR, -YEAR, timedelta()], ids=["ahead", "back", "home"])
def test_p3_a_jump_of_the_wall_clock_cuts_nothing_and_prevents_no_change(
    clocked: tuple[Lab, WallClock], jump: timedelta
) -> None:
    lab, clock = clocked
    node = lab.nodes["socks5-udp"]
    send(lab, 1, "socks5-udp")
    send(lab, 2, "DIRECT")
    eventually(lambda: seen(lab, 1) == node.address)
    connections = [lab.client(number).connect() for number in (1, 2)]
    clock.set(jump)
    year = time.strftime("%Y", time.gmtime(time.time() + jump.total_seconds()))
    eventually(lambda: told_year(lab) == year)
    assert all(connection.exchange("still here?").ok for connection in connections)
    send(lab, 3, "socks5-udp")
    assert seen(lab, 3) == node.address
    send(lab, 3, "REJECT")
    assert seen(lab, 3) == ""
    assert all(connection.exchange("and now?").ok for connection in connections)
    for connection in connections:
        connection.close()
    # Timers inside netd go on: a node that died is served again at once.
    node.program.kill()
    assert seen(lab, 1) == ""
    lab.start_node(node)
    eventually(lambda: seen(lab, 1) == node.address)


def test_p4_accepted_changes_survive_a_start_in_another_year(
    clocked: tuple[Lab, WallClock],
) -> None:
    lab, clock = clocked
    send(lab, 2, "socks5-udp")
    clock.set(-YEAR)
    lab.device.kill()
    lab.device.start()
    eventually(lambda: seen(lab, 2) == lab.nodes["socks5-udp"].address)
    clock.set(timedelta())

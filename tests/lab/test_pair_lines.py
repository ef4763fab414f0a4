"""VPN lines of a pair: one box at a time dials them. See `tests.support.pair_lines`."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator

import pytest

from egressd_lab.spec import wan_plans
from tests.support import postgres
from tests.support.device import SERVER, eventually
from tests.support.needs import Need
from tests.support.pair_lines import DRAFT, LINE, VpnServer, settle, state, use_stand_in
from tests.support.paired_lab import PairedLab, other, paired_lab

pytestmark = pytest.mark.lab

TARGET = f"Interface:{LINE}"
ONLINE_S, REFUSED_S = 5.0, 10.0
"""Seconds after a takeover in which a line is online, and those with a server that refuses a second
session at first."""


@pytest.fixture(scope="module")
def made(namespaces: None) -> Iterator[PairedLab]:
    with paired_lab(prepare=lambda device, lab: use_stand_in(device, lab.folder)) as pair:
        yield pair


@pytest.fixture
def pair(need: Need, request: pytest.FixtureRequest) -> Iterator[PairedLab]:
    need("the package postgresql", bool(postgres.PROGRAMS))
    for name in ("keepalived", "conntrackd", "pppd"):
        need(f"the package of {name}", shutil.which(name) is not None)
    made: PairedLab = request.getfixturevalue("made")
    yield made
    made.mend()


@pytest.fixture
def server(pair: PairedLab) -> Iterator[VpnServer]:
    """A server that has heard of the line's first session, by the active box."""
    made = VpnServer(pair.lab)
    made.start()
    pair.boxes[1].api.post("/vpn-lines", DRAFT)
    settle(pair, pair.active())
    yield made
    pair.mend()
    pair.boxes[1].api.delete("/vpn-lines", {"items": [{"type": "pptp", "name": LINE}]})
    made.stop()


def own(pair: PairedLab, box: int) -> str:
    """Return the address that a box calls the server from."""
    return wan_plans(pair.lab.spec, box)[0].address


def test_a_box_that_stops_hangs_up_before_the_other_dials(
    pair: PairedLab, server: VpnServer
) -> None:
    client = pair.lab.client(1).address
    pair.boxes[1].api.post("/rules", {"ip": client, "target_node": TARGET})
    first = pair.active()
    second = other(first)
    said = pair.boxes[second].run("explain", client, SERVER, check=False)
    assert "the active box of the pair dials this line" in said
    pair.boxes[first].stop()
    eventually(lambda: state(pair, second) == "online", 30)
    former, present = (each.at for each in server.heard()[-2:])
    print(f"dialled {present - former:.2f} s after the other box has hung up")
    assert present - former < ONLINE_S
    assert server.callers()[-2:] == [own(pair, first), own(pair, second)]
    assert "refused" not in {each.what for each in server.heard()}
    pair.boxes[first].start()
    settle(pair, second)
    assert server.callers()[-1] == own(pair, second)


def test_a_box_that_takes_over_is_not_put_off_by_a_refusal(
    pair: PairedLab, server: VpnServer
) -> None:
    first = pair.active()
    second = other(first)
    began = time.monotonic()
    pair.lab.topology.power(first, is_on=False)
    eventually(lambda: pair.active() == second, 30)
    taken_over = time.monotonic()
    eventually(lambda: state(pair, second) == "online", 30)
    late_s = time.monotonic() - taken_over
    print(f"online {late_s:.2f} s after the takeover")
    assert late_s < REFUSED_S
    print(f"and {server.sessions()[-1].at - began:.2f} s after the loss of the other box")
    # Its own session had not ended yet at the server, which says of that what it says of a wrong
    # password.
    assert {each.caller for each in server.heard() if each.what == "refused"} == {own(pair, second)}
    assert server.callers()[-2:] == [own(pair, first), own(pair, second)]
    pair.lab.topology.power(first, is_on=True)
    settle(pair, second)
    assert server.callers()[-1] == own(pair, second)


def test_a_line_stays_up_while_netd_is_replaced(pair: PairedLab, server: VpnServer) -> None:
    first = pair.active()
    before = server.heard()
    box = pair.boxes[first]
    (netd,) = box.pids("egressd.app netd")
    os.kill(netd, signal.SIGKILL)
    eventually(lambda: box.pids("egressd.app netd") not in ([], [netd]), 30)
    box.wait_healthy()
    settle(pair, first)
    assert server.heard() == before

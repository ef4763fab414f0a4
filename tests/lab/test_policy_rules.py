"""Other programs' policy rules, real wg-quick's among them: clients keep their own egresses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from egressd_lab.client import Client
from egressd_lab.host import Host
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from egressd_lab.spec import LabSpec, Place
from tests.lab.wireguard import Peer, peer_lines, raised
from tests.support.device import SERVER, add_nodes, eventually, send, suspended
from tests.support.leaks import watched

pytestmark = pytest.mark.lab

FAR = "10.200.0.1"
WEB = f"http://{SERVER}/"
TARGETS = {1: "DIRECT", 2: "Interface:wan2", 3: "ss", 4: "REJECT"}


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("ss",), clients=4)) as lab:
        lab.start_egressd()
        add_nodes(lab)
        for client, target in TARGETS.items():
            send(lab, client, target)
        yield lab


@pytest.fixture(scope="module")
def tunnel(lab: Lab) -> Iterator[Peer]:
    """Yield a typical commercial VPN, which takes all traffic. Its far end is up."""
    name = f"wg{lab.name}"[:12]
    mine = Peer(lab.router, lab.folder, f"{name}a", "10.200.0.2/32")
    elsewhere = Host(lab.name, "node-ss", lab.folder)
    far = Peer(elsewhere, lab.folder, f"{name}b", f"{FAR}/24")
    mine.configure(*peer_lines(far, "0.0.0.0/0", endpoint=f"{lab.nodes['ss'].address}:51820"))
    far.configure(*peer_lines(mine, "10.200.0.2/32"), port=51820)
    with raised(far), closing(elsewhere):
        yield mine


def by_tunnel(lab: Lab, token: str) -> None:
    """Check that the machine's own traffic leaves by the tunnel."""
    own = Client(lab.router, Place(name="router", role="router", address="10.200.0.2"))
    eventually(lambda: own.ping(FAR, text=token, timeout=0.5).ok)


def problems(lab: Lab) -> list[str]:
    """Return the problems, without those of the hundreds of flows in these tests."""
    found: list[str] = lab.api.ask("GET", "/ops/overview").body["problems"]
    return [problem for problem in found if "the bound of" not in problem]


def all_reach(lab: Lab) -> bool:
    wans = {1: lab.wan(1).address, 2: lab.wan(2).address, 3: lab.nodes["ss"].address, 4: ""}
    seen = {client: lab.client(client).http(WEB, timeout=1).seen for client in TARGETS}
    return seen == wans and all(lab.client(n).udp_echo("hello", timeout=1).ok for n in (1, 2, 3))


def test_p2_clients_keep_their_egress_while_wg_quick_is_the_default(lab: Lab, tunnel: Peer) -> None:
    assert all_reach(lab)
    with watched(lab, TARGETS):
        for _ in range(3):
            with raised(tunnel):
                eventually(lambda: all_reach(lab))
                with lab.router.capture(tunnel.name) as capture:
                    capture.prove(lambda token: by_tunnel(lab, token))
                    token = new_token()
                    for client in TARGETS:
                        lab.client(client).every_way(token)
                    assert capture.flows(token) == []
                assert problems(lab) == []
            eventually(lambda: all_reach(lab))


def test_p1_without_the_table_no_client_leaves_by_a_wg_quick_tunnel(lab: Lab, tunnel: Peer) -> None:
    with raised(tunnel):
        eventually(lambda: all_reach(lab))
        with suspended(lab, "egressd.app netd"), lab.router.capture(tunnel.name) as capture:
            lab.router.run("nft", "flush", "ruleset")
            capture.prove(lambda token: by_tunnel(lab, token))
            token = new_token()
            for client in TARGETS:
                lab.client(client).every_way(token)
            assert capture.flows(token) == []
        eventually(lambda: all_reach(lab))


def test_the_start_order_makes_no_difference(lab: Lab, tunnel: Peer) -> None:
    lab.device.stop()
    try:
        with raised(tunnel):
            lab.device.start()
            eventually(lambda: all_reach(lab))
            assert problems(lab) == []
    finally:
        if not lab.device.program.running:
            lab.device.start()
    eventually(lambda: all_reach(lab))


@pytest.mark.parametrize("family", ["-4", "-6"])
def test_rules_that_cannot_be_outranked_are_reported(lab: Lab, family: str) -> None:
    rule = ("ip", family, "rule", "{}", "priority", "0", "iif", "lan0", "lookup", "51")
    lab.router.run(*(word.format("add") for word in rule))
    try:
        eventually(lambda: any("policy rules" in problem for problem in problems(lab)))
    finally:
        lab.router.run(*(word.format("del") for word in rule))
    eventually(lambda: problems(lab) == [])
    assert all_reach(lab)


def test_p3_connections_continue_while_our_rules_move(lab: Lab) -> None:
    connections = [lab.client(client).connect() for client in (1, 2, 3)]
    with watched(lab, TARGETS):
        for number in range(10):
            lab.router.run("ip", "rule", "add", "lookup", "51")  # an empty table
            eventually(lambda: first_priority(lab, ours=True) < first_priority(lab, ours=False))
            assert all(each.exchange(f"{number}a").ok for each in connections)
            lab.router.run("ip", "rule", "del", "lookup", "51")
            eventually(lambda: first_priority(lab, ours=True) == 100)
            assert all(each.exchange(f"{number}b").ok for each in connections)
    for each in connections:
        each.close()


def first_priority(lab: Lab, *, ours: bool) -> int:
    """Return the lowest priority except the kernel's first, or 99,999 without any."""
    shown = lab.router.run("ip", "rule", "show").stdout.splitlines()
    found = [int(line.partition(":")[0]) for line in shown if line.endswith("lookup 51 ") != ours]
    return min((number for number in found if number), default=99_999)

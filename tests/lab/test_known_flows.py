"""A node's client: most of its packets meet few rules, and the connmark check is among them.

netd is suspended, so that only the chains act.
"""

from __future__ import annotations

import errno
import re
import select
import socket
from collections.abc import Iterator

import pytest

from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.support.device import SERVER, add_nodes, elements, eventually, send, suspended

pytestmark = pytest.mark.lab

CLIENT = 1


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("socks5-udp", "ss"))) as lab:
        lab.start_egressd()
        add_nodes(lab)
        # Without a whitelist no packet is looked up in it.
        lab.api.put("/whitelist", {"domains": "", "ips": "192.0.2.77", "node": "DIRECT"})
        yield lab


@pytest.fixture
def still(lab: Lab) -> Iterator[Lab]:
    """Send client 1 through a node and client 2 through another, and restore all afterwards."""
    send(lab, CLIENT, "socks5-udp")
    send(lab, 2, "ss")
    with suspended(lab, "egressd.app netd"):
        yield lab
    lab.router.run("nft", "flush", "ruleset")  # netd restores its table
    eventually(lambda: lab.client(CLIENT).http(f"http://{SERVER}/").ok)


def nft(lab: Lab, *command: str) -> str:
    return lab.router.run("nft", *command).stdout


def mark(lab: Lab, client: int) -> str:
    """Return the kernel's mark for its address."""
    hosts = elements(lab, "map", "hosts")
    found = re.search(rf"{re.escape(lab.client(client).address)} : (0x[0-9a-f]+)", hosts)
    assert found
    return found[1]


def packets(lab: Lab, chain: str) -> int:
    """Return the count of the counter in front of a chain's rules."""
    found = re.search(r"counter packets (\d+)", nft(lab, "list", "chain", "inet", "egressd", chain))
    assert found
    return int(found[1])


def test_packets_of_a_known_flow_meet_few_rules(still: Lab) -> None:
    chains = ("known_host_to_engine", "unknown")
    source = still.client(CLIENT).address
    for chain in chains:
        nft(still, "insert", "rule", "inet", "egressd", chain, "ip", "saddr", source, "counter")
    connection = still.client(CLIENT).connect()
    first = [packets(still, chain) for chain in chains]
    assert first[1] >= 1  # a connection begins with unknown packets
    for _ in range(5):
        assert connection.exchange("known").ok
    known, unknown = (packets(still, chain) - n for chain, n in zip(chains, first, strict=True))
    assert known >= 5
    assert unknown == 0
    connection.close()


def test_p1_another_mark_of_its_client_cuts_a_flow(still: Lab) -> None:
    address, other = still.client(CLIENT).address, mark(still, 2)
    connection, bystander = still.client(CLIENT).connect(), still.client(2).connect()
    assert connection.exchange("as it was").ok
    nft(still, "delete", "element", "inet", "egressd", "hosts", f"{{ {address} }}")
    nft(still, "add", "element", "inet", "egressd", "hosts", f"{{ {address} : {other} }}")
    assert not connection.exchange("cut", timeout=2).ok
    assert bystander.exchange("not concerned").ok
    assert still.client(CLIENT).http(f"http://{SERVER}/").seen == still.nodes["ss"].address


def test_a_flow_with_the_ports_of_a_tracked_one_waits_until_that_expires(still: Lab) -> None:
    source, port = still.client(CLIENT).address, 15_009
    old = ["-p", "tcp", "-s", source, "-d", SERVER, "--sport", str(port), "--dport", "7"]
    marked = ["--state", "ESTABLISHED", "-t", "100", "-m", str(int(mark(still, 2), 16))]
    still.router.run("conntrack", "-I", *old, *marked, "-u", "SEEN_REPLY,ASSURED")
    with still.client(CLIENT).host.socket() as connecting:
        connecting.bind((source, port))
        connecting.setblocking(False)
        assert connecting.connect_ex((SERVER, 7)) == errno.EINPROGRESS
        assert select.select([], [connecting], [], 0.3) == ([], [], []), "neither made nor refused"
        still.router.run("conntrack", "-D", *old)
        assert select.select([], [connecting], [], 5)[1] == [connecting]
        assert connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0


def test_p1_a_deleted_mark_of_its_client_cuts_a_flow(still: Lab) -> None:
    address = still.client(CLIENT).address
    connection = still.client(CLIENT).connect()
    assert connection.exchange("as it was").ok
    nft(still, "delete", "element", "inet", "egressd", "hosts", f"{{ {address} }}")
    assert not connection.exchange("cut", timeout=2).ok


def test_p1_a_flow_is_cut_once_its_destination_is_listed(still: Lab) -> None:
    other = mark(still, 2)
    connection = still.client(CLIENT).connect()
    assert connection.exchange("as it was").ok
    nft(still, "add", "element", "inet", "egressd", "wl", f"{{ {SERVER} : {other} }}")
    assert not connection.exchange("cut", timeout=2).ok
    assert still.client(CLIENT).http(f"http://{SERVER}/").seen == still.nodes["ss"].address


def test_p1_a_flow_is_refused_if_its_node_has_no_instance(still: Lab) -> None:
    own = mark(still, CLIENT)
    connection = still.client(CLIENT).connect()
    assert connection.exchange("as it was").ok
    nft(still, "delete", "element", "inet", "egressd", "ports", f"{{ {own} }}")
    assert not connection.exchange("cut", timeout=2).ok
    assert not still.client(CLIENT).http(f"http://{SERVER}/").ok

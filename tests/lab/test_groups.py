"""Groups: the node of each client, the effect of a node's failure or return, and its delay."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from egressd_lab import netns
from egressd_lab.client import TIMEOUT
from egressd_lab.lab import Lab
from egressd_lab.nodes import Node
from egressd_lab.process import Program
from egressd_lab.spec import RESOLVERS, WEB_SERVERS, LabSpec
from tests.support.device import SERVER, clear, configure, eventually, send
from tests.support.programs import argv_of

pytestmark = pytest.mark.lab

WEB = f"http://{SERVER}/"
INTERVAL_S = 6
"""Seconds between checks."""


@pytest.fixture(scope="module")
def crowded(namespaces: None) -> Iterator[Lab]:
    """Yield a device with a short check interval, clients, and four equal nodes."""
    with Lab(LabSpec(clients=12, nodes=())) as lab:
        for number in range(4):
            lab.add_node("ss", f"node{number}")
        lab.start_egressd()
        yield lab


@pytest.fixture
def lab(crowded: Lab) -> Iterator[Lab]:
    yield crowded
    clear(crowded)
    for node in crowded.nodes.values():
        if not node.program.running:
            crowded.start_node(node)


def use(lab: Lab, strategy: str, *, members: int = 4) -> list[Node]:
    """Put the first nodes of the lab into the group g, with that strategy."""
    configure(
        lab,
        delay_url=f"{WEB}generate_204",
        check_interval_s=INTERVAL_S,
        group_strategy=strategy,
    )
    nodes = list(lab.nodes.values())[:members]
    for node in nodes:
        lab.api.post("/nodes", node.draft("g"))
    return nodes


def seen(lab: Lab, client: int) -> str:
    """Return the source address of a client's HTTP request, or its error."""
    reply = lab.client(client).http(WEB)
    return reply.seen or reply.error


def udp_seen(lab: Lab, client: int) -> str:
    reply = lab.client(client).udp_echo("hello", SERVER)
    return reply.seen or reply.error


@contextmanager
def detour(lab: Lab, node: Node, seconds: float) -> Iterator[dict[str, str]]:
    """Put the node's server behind a slow forwarder, and yield its draft, in the group g."""
    namespace = netns.namespace(lab.name, node.role)
    argv = argv_of("hesitant", node.address, str(node.port), str(seconds))
    program = Program(namespace, argv, lab.folder / f"hesitant-{node.name}.log")
    program.start()
    try:
        config = json.dumps({**node.clash, "port": node.port + 1})
        yield {**node.draft("g"), "config_json": config}
    finally:
        program.kill()


def node_id(lab: Lab, node: Node) -> int:
    rows = lab.api.get("/nodes")["data"]
    return next(int(row["id"]) for row in rows if row["name"] == node.name)


def test_the_fastest_node_serves(lab: Lab) -> None:
    use(lab, "urltest", members=0)
    slow, fast, slower, _ = lab.nodes.values()
    with detour(lab, slow, 0.2) as first, detour(lab, slower, 0.3) as third:
        for draft in (first, fast.draft("g"), third):
            lab.api.post("/nodes", draft)
        send(lab, 1, "Group_g")
        eventually(lambda: seen(lab, 1) == fast.address, 3 * INTERVAL_S)
        fast.program.kill()
        eventually(lambda: seen(lab, 1) == slow.address)
        held = lab.client(1).connect()
        lab.start_node(fast)
        eventually(lambda: seen(lab, 1) == fast.address, 3 * INTERVAL_S)
        assert held.exchange("a faster one came").ok


def test_fallback_uses_the_order_and_returns_without_a_cut(lab: Lab) -> None:
    nodes = use(lab, "fallback")
    send(lab, 1, "Group_g")
    assert seen(lab, 1) == nodes[0].address
    assert udp_seen(lab, 1) == nodes[0].address
    nodes[0].program.kill()
    assert eventually(lambda: seen(lab, 1) == nodes[1].address) < 1.5
    assert udp_seen(lab, 1) == nodes[1].address
    held = lab.client(1).connect()
    lab.start_node(nodes[0])
    eventually(lambda: seen(lab, 1) == nodes[0].address, 3 * INTERVAL_S)
    assert held.exchange("still there").ok
    held.close()


def test_a_silent_node_is_replaced_within_the_interval(lab: Lab) -> None:
    nodes = use(lab, "fallback")
    send(lab, 1, "Group_g")
    assert seen(lab, 1) == nodes[0].address
    held = lab.client(1).connect()
    nodes[0].program.signal(signal.SIGSTOP)
    try:
        took = eventually(lambda: seen(lab, 1) == nodes[1].address, 2 * INTERVAL_S)
        assert took <= INTERVAL_S + TIMEOUT
        assert not held.exchange("on the silent node").ok
    finally:
        nodes[0].program.signal(signal.SIGCONT)


def spread(lab: Lab, clients: range) -> dict[int, str]:
    return {number: seen(lab, number) for number in clients}


def test_a_group_is_served_after_a_start_with_a_flushed_table(lab: Lab) -> None:
    """Past fault: with a group in use netd ended at each start while its table was missing, because
    the first load of the table needed the group's choice before it was known.
    """
    nodes = use(lab, "fallback")
    send(lab, 1, "Group_g")
    lab.device.stop()
    # The table is missing after a reboot, or after another program's ruleset that begins with a
    # flush.
    lab.router.run("nft", "delete", "table", "inet", "egressd")
    lab.device.start()
    eventually(lambda: seen(lab, 1) == nodes[0].address)


def test_p2_a_flow_is_served_again_after_its_standby_node_was_lost(lab: Lab) -> None:
    """Past fault: a UDP flow with fixed ports was dropped for good once its worker was lost, if its
    node only stood by for a group. Its conntrack entry outlived the node.
    """
    nodes = use(lab, "fallback")
    send(lab, 1, "Group_g")
    assert seen(lab, 1) == nodes[0].address
    nodes[0].program.kill()
    eventually(lambda: seen(lab, 1) == nodes[1].address)
    client = lab.client(1)
    argv = argv_of("talker", "talk", client.address, SERVER, "7")
    namespace = netns.namespace(lab.name, client.host.role)
    talker = Program(namespace, argv, lab.folder / "talker.log")
    talker.start()
    try:
        eventually(lambda: nodes[1].address in talker.tail())
        lab.start_node(nodes[0])
        eventually(lambda: seen(lab, 1) == nodes[0].address, 3 * INTERVAL_S)
        assert talker.tail().split()[-1] == nodes[1].address
        for worker in lab.device.pids("engine.worker"):
            os.kill(worker, signal.SIGKILL)
        eventually(lambda: talker.tail().split()[-1] == nodes[0].address)
    finally:
        talker.kill()


def test_sticky_spreads_evenly_and_moves_clients_of_dead_nodes_only(lab: Lab) -> None:
    nodes = use(lab, "sticky")
    clients = range(1, 13)
    for number in clients:
        send(lab, number, "Group_g")
    before = spread(lab, clients)
    assert sorted(Counter(before.values()).values()) == [3, 3, 3, 3]
    assert {number: udp_seen(lab, number) for number in clients} == before
    held = {number: lab.client(number).connect() for number in clients}

    gone = nodes[1].address
    nodes[1].program.kill()
    homeless = [number for number in clients if before[number] == gone]
    eventually(lambda: all(seen(lab, n) in {x.address for x in nodes} for n in homeless))
    after = spread(lab, clients)
    assert sorted(Counter(after.values()).values()) == [4, 4, 4]
    for number in clients:
        if number in homeless:
            assert not held[number].exchange("on the dead node").ok
        else:
            assert after[number] == before[number]
            assert held[number].exchange("undisturbed").ok

    lab.start_node(nodes[1])
    time.sleep(INTERVAL_S)
    assert spread(lab, clients) == after
    (netd,) = lab.device.pids("egressd.app netd")
    os.kill(netd, signal.SIGKILL)
    lab.device.wait_healthy()
    assert spread(lab, clients) == after


def test_a_new_client_gets_the_node_with_the_fewest_clients(lab: Lab) -> None:
    use(lab, "sticky")
    for number in range(1, 5):
        send(lab, number, "Group_g")
    before = spread(lab, range(1, 5))
    gone = 2
    rule = next(r for r in lab.api.get("/rules")["data"] if r["ip"] == lab.client(gone).address)
    lab.api.delete(f"/rules/{rule['id']}")
    send(lab, 5, "Group_g")
    assert seen(lab, 5) == before[gone]


def test_clients_of_a_cidr_keep_their_node(lab: Lab) -> None:
    nodes = use(lab, "sticky")
    lab.api.post("/rules", {"ip": "10.77.0.0/24", "target_node": "Group_g"})
    clients = range(1, 13)
    before = spread(lab, clients)
    assert set(before.values()) <= {node.address for node in nodes}
    assert len(set(before.values())) > 1
    assert spread(lab, clients) == before


@pytest.mark.parametrize("strategy", ["fallback", "sticky"])
def test_added_and_removed_members_cut_only_their_own_clients(lab: Lab, strategy: str) -> None:
    nodes = use(lab, strategy, members=2)
    for number in (1, 2):
        send(lab, number, "Group_g")
    before = spread(lab, range(1, 3))
    held = {number: lab.client(number).connect() for number in (1, 2)}

    lab.api.post("/nodes", list(lab.nodes.values())[2].draft("g"))
    assert all(connection.exchange("one came").ok for connection in held.values())
    assert spread(lab, range(1, 3)) == before

    leaving = nodes[0]
    lab.api.patch("/nodes/batch", {"ids": [node_id(lab, leaving)], "group": ""})
    for number, connection in held.items():
        assert connection.exchange("one left").ok == (before[number] != leaving.address)
        assert seen(lab, number) not in (leaving.address, "")


def test_a_group_without_nodes_blocks_its_clients(lab: Lab) -> None:
    (node,) = use(lab, "urltest", members=1)
    send(lab, 1, "Group_g")
    assert seen(lab, 1) == node.address
    held = lab.client(1).connect()
    answer = lab.api.delete(f"/nodes/{node_id(lab, node)}")
    assert "1 rule is blocked, as there is no group g" in answer["msg"]
    token = "nobody-home"
    with lab.internet.capture() as capture:
        capture.prove()
        assert not held.exchange(token).ok
        ways = lab.client(1).every_way(token)
        assert not any(way.ok for way in ways.values())
        assert not capture.flows(token)
    lab.api.post("/nodes", node.draft("g"))
    assert seen(lab, 1) == node.address


def test_a_group_can_be_the_whitelists_destination(lab: Lab) -> None:
    nodes = use(lab, "fallback")
    send(lab, 1, "DIRECT")
    lab.api.put("/whitelist", {"domains": "", "ips": SERVER, "node": "Group_g"})
    try:
        assert seen(lab, 1) == nodes[0].address
    finally:
        lab.api.put("/whitelist", {"domains": "", "ips": "", "node": "DIRECT"})


def test_traffic_recognised_by_its_domain_goes_to_a_group(lab: Lab) -> None:
    """This includes clients of one of its nodes, whose instance must not make the flow loop."""
    nodes = use(lab, "fallback", members=2)
    outsider = list(lab.nodes.values())[2]
    lab.api.post("/nodes", outsider.draft())
    for client, target in ((1, "DIRECT"), (2, outsider.name), (3, nodes[0].name)):
        send(lab, client, target)
    lab.api.put("/whitelist", {"domains": "www.test", "ips": "", "node": "Group_g"})
    try:
        for client in (1, 2, 3):
            reply = lab.client(client).http("http://www.test/", resolver=RESOLVERS["google"])
            assert (reply.error, reply.seen) == ("", nodes[0].address)
        assert seen(lab, 2) == outsider.address
    finally:
        lab.api.put("/whitelist", {"domains": "", "ips": "", "node": "DIRECT"})


def test_traffic_recognised_by_its_domain_is_spread_in_a_sticky_group(lab: Lab) -> None:
    # The instance that knows the name returns such flows as its own, so all have one source.
    use(lab, "sticky")
    for number, address in enumerate(WEB_SERVERS):
        lab.internet.put_name(f"www{number}.listed.test", address)
    send(lab, 1, "DIRECT")
    send(lab, 2, "DIRECT")
    lab.api.put("/whitelist", {"domains": "listed.test", "ips": "", "node": "Group_g"})
    try:
        served = [
            [
                lab.client(client)
                .http(f"http://www{number}.listed.test/", resolver=RESOLVERS["google"])
                .seen
                for number, _ in enumerate(WEB_SERVERS)
            ]
            for client in (1, 2, 1)
        ]
        nodes = {node.address for node in lab.nodes.values()}
        assert set(served[0]) <= nodes
        assert len(set(served[0])) > 1
        assert served[0] == served[1] == served[2], "whom it is for decides"
    finally:
        lab.api.put("/whitelist", {"domains": "", "ips": "", "node": "DIRECT"})

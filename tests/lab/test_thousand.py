"""A thousand clients with a node each, all at once: each of them is seen with its own node's
address and with no other, before, during and after changes of some of them (P1, P3).
"""

from __future__ import annotations

import json
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from egressd_lab import netns
from egressd_lab.device import rule_body
from egressd_lab.lab import Lab
from egressd_lab.nodes import PASSWORD, USER
from egressd_lab.spec import OWN_NAMESPACE, LabSpec
from tests.support.crowd import ECHO, Seen, hold_until_told, make_room, seen_by_tcp
from tests.support.device import eventually
from tests.support.netns import JoinedNamespace

pytestmark = pytest.mark.lab

CLIENTS: Final = 1_000
OWN: Final = [f"n{number}" for number in range(CLIENTS)]
"""Each client's own node."""
MOVED: Final = range(0, CLIENTS, 20)
"""Every twentieth client, which gets its neighbour's node."""
RENEWED: Final = range(5, CLIENTS, 100)
"""Every hundredth client, whose node gets another configuration."""
PORT: Final = 1080
ANSWER_S: Final = 30.0
PERIOD_S: Final = 0.5


class Crowd:
    """The clients, their nodes and their rules."""

    def __init__(self, lab: Lab, network: JoinedNamespace) -> None:
        self.api = lab.api
        self.network = network
        self.clients = [client.address for client in lab.clients[OWN_NAMESPACE:]]
        self._nodes = dict(zip(OWN, _start_nodes(lab), strict=True))
        rows = "\n".join(f"name: {name}, {_row(node)}" for name, node in self._nodes.items())
        self.api.post("/nodes/import", {"type": "others", "text": rows})
        self.point_at(OWN)

    def point_at(self, targets: Sequence[str]) -> None:
        """Give all clients new rules."""
        rows = (f"{client},{target}," for client, target in zip(self.clients, targets, strict=True))
        self.api.post("/rules/import", {"text": "\n".join(rows), "replace": True})

    def wanted(self) -> Seen:
        """Return each client's address -> the address of its rule's node."""
        rules = self.api.get("/rules")["data"]
        return {rule["ip"]: self._nodes[rule["target_node"]] for rule in rules}

    def move(self, number: int) -> None:
        """Give a client the next one's node."""
        rules = self.api.get("/rules")["data"]
        rule = next(rule for rule in rules if rule["ip"] == self.clients[number])
        body = {**rule_body(rule), "target_node": OWN[number + 1]}
        self.api.put(f"/rules/{rule['id']}", body)

    def renew(self, number: int) -> None:
        """Restart a node's instance with a configuration that carries no UDP any more."""
        nodes = self.api.get("/nodes")["data"]
        node = next(node for node in nodes if node["name"] == OWN[number])
        config = {**json.loads(node["config_json"]), "udp": False}
        body = {field: node[field] for field in ("name", "protocol", "group")}
        self.api.put(f"/nodes/{node['id']}", {**body, "config_json": json.dumps(config)})


def _start_nodes(lab: Lab) -> list[str]:
    users = [{"username": USER, "password": PASSWORD}]
    inbound = {"type": "socks", "listen_port": PORT, "users": users}
    return lab.add_engine_node("many", [inbound] * CLIENTS)


@pytest.fixture(scope="module")
def crowd(namespaces: None) -> Iterator[Crowd]:
    make_room()
    with Lab(LabSpec(nodes=(), clients=OWN_NAMESPACE + CLIENTS)) as lab:
        lab.start_egressd()
        with JoinedNamespace(netns.namespace(lab.name, "crowd")) as network:
            yield Crowd(lab, network)


def test_p1_each_client_leaves_by_its_own_nodes_address(crowd: Crowd) -> None:
    wanted = crowd.wanted()
    assert len(set(wanted.values())) == CLIENTS
    assert crowd.network.run_async(seen_by_tcp, crowd.clients, ANSWER_S) == wanted
    assert crowd.network.run(seen_by_udp, crowd.clients) == wanted


def test_refused_udp_is_reported_to_the_client_at_once(crowd: Crowd) -> None:
    assert crowd.network.run(learn_of_refusal, crowd.clients) == set()
    crowd.point_at(["REJECT"] * CLIENTS)
    refused = crowd.network.run(learn_of_refusal, crowd.clients)
    crowd.point_at(OWN)
    assert refused == set(crowd.clients)


def test_p3_changes_of_some_clients_do_not_affect_the_others(crowd: Crowd, tmp_path: Path) -> None:
    before = crowd.wanted()
    holding = crowd.network.start(
        hold_until_told, crowd.clients, tmp_path, period_s=PERIOD_S, answer_s=ANSWER_S
    )
    try:
        eventually((tmp_path / "begun").exists, 2 * ANSWER_S)  # to connect, and to be greeted
        for number in MOVED:
            crowd.move(number)
        for number in RENEWED:
            crowd.renew(number)
    finally:
        (tmp_path / "end").touch()
    held = dict(zip(crowd.clients, holding.result(2 * ANSWER_S), strict=True))
    assert {client: each.seen for client, each in held.items()} == before
    cut = {client for client, each in held.items() if not each.has_lasted}
    assert cut == {crowd.clients[number] for number in (*MOVED, *RENEWED)}
    after = crowd.wanted()
    assert sum(after[client] != before[client] for client in before) == len(MOVED)
    assert crowd.network.run_async(seen_by_tcp, crowd.clients, ANSWER_S) == after


# --- The clients' actions, in their own namespace. --------------------------------------------


def seen_by_udp(sources: Sequence[str]) -> Seen:
    """Send a datagram from all sources at once, and again each second until it is answered."""
    seen: Seen = {}
    with selectors.DefaultSelector() as waiting:
        for source in sources:
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            opened.bind((source, 0))
            opened.connect(ECHO)
            waiting.register(opened, selectors.EVENT_READ, (source, opened))
        until = time.monotonic() + ANSWER_S
        while waiting.get_map() and time.monotonic() < until:
            for key in waiting.get_map().values():
                with suppress(OSError):
                    key.data[1].send(b"hello")
            while ready := waiting.select(1.0):
                for key, _ in ready:
                    source, opened = key.data
                    seen[source] = json.loads(opened.recv(2048).splitlines()[0])["ip"]
                    waiting.unregister(opened)
                    opened.close()
    return seen


def learn_of_refusal(sources: Sequence[str]) -> set[str]:
    """Send one datagram from all sources at once, and return those that get an error within a
    second.
    """
    refused = set()
    with selectors.DefaultSelector() as waiting:
        for source in sources:
            opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            opened.bind((source, 0))
            opened.connect(ECHO)
            opened.setblocking(False)
            opened.send(b"hello")
            waiting.register(opened, selectors.EVENT_READ, (source, opened))
        until = time.monotonic() + 1
        while waiting.get_map() and (left := until - time.monotonic()) > 0:
            for key, _ in waiting.select(left):
                source, opened = key.data
                try:
                    opened.recv(2048)
                except OSError:
                    refused.add(source)
                waiting.unregister(opened)
                opened.close()
    return refused


def _row(node: str) -> str:
    return (
        f"type: socks5, server: {node}, port: {PORT},"
        f" username: {USER}, password: {PASSWORD}, udp: true"
    )

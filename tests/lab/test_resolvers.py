"""Clients get answers where the device's own resolver is one WAN's router, or one of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from egressd.netd.health.dns_servers import PERIOD_S
from egressd_lab.dnswire import TTL
from egressd_lab.lab import Lab
from egressd_lab.netns import exec_argv
from egressd_lab.spec import LAN_ADDRESS, RESOLVERS, WHOAMI, LabSpec
from tests.support.device import SERVER, eventually, send

pytestmark = pytest.mark.lab

NODE = "node.example"
SILENT = "10.77.0.249"
"""An address of the LAN that no host has: queries to it must not leave."""


@pytest.fixture
def near(namespaces: None) -> Iterator[Lab]:
    """Yield a lab whose device uses the resolver of resolv.conf, which has a route by wan1."""
    with Lab() as lab:
        gateway = lab.wan(1).gateway
        lab.topology.ip("router", [f"route add {RESOLVERS['device']}/32 via {gateway} dev wan1"])
        lab.start_egressd({"dns": {"device": []}})
        yield lab


def asked(lab: Lab, client: int) -> tuple[str, set[str]]:
    """Return the source of a client's query, if it was answered, and the resolvers that saw it."""
    mark = lab.internet.mark()
    name = f"of-{client}.{WHOAMI}"
    reply = lab.client(client).dns(name, RESOLVERS["google"])
    seen = lab.internet.seen(since=mark, service="dns", text=name)
    return "".join(reply.addresses), {s.server for s in seen}


def add_by_name(lab: Lab, settings: dict[str, str], name: str = "socks5") -> None:
    """Add the node ``socks5`` by a host name instead of its address, under the name `name`."""
    node = lab.nodes["socks5"]
    lab.internet.put_name(NODE, node.address)
    config = json.dumps({**node.clash, "server": NODE, **settings})
    lab.api.post("/nodes", {**node.draft(), "name": name, "config_json": config})


def asked_for_the_node(lab: Lab, client: int) -> set[tuple[str, str]]:
    """Return the resolvers queried for the node's name, and the queries' sources, if a client was
    served by the node.
    """
    mark = lab.internet.mark()
    if lab.client(client).http(f"http://{SERVER}/", timeout=2).seen != lab.nodes["socks5"].address:
        return set()
    seen = lab.internet.seen(since=mark, service="dns", text=NODE)
    return {(s.server, s.source) for s in seen}


FORWARDER = """
import socket, sys, threading
own = sys.argv[1]
clients = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
clients.bind((own, 53))
def ask(question, client):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as upstream:
        upstream.settimeout(2)
        upstream.sendto(question, ("8.8.8.8", 53))
        clients.sendto(upstream.recv(4096), client)
print("ready", flush=True)
for _ in range(20):
    question, client = clients.recvfrom(4096)
    if b"root-servers" not in question:  # netd asks it, too
        print("asked", flush=True)
    threading.Thread(target=ask, args=(question, client), daemon=True).start()
"""
"""A resolver that forwards each query to another one, 20 times at most."""


def told(lab: Lab, client: int) -> object:
    """Return the device's report on the resolution of a client's names."""
    answer = lab.device.run("explain", lab.client(client).address, SERVER, "--json")
    dns = json.loads(answer)["dns"]
    return {name: value for name, value in dns.items() if not name.endswith("_coded")}


def alone(server: str, way: str) -> dict[str, object]:
    """Return the report on a resolver without a substitute."""
    return {"server": server, "further": [], "way": way}


def test_clients_and_nodes_use_a_resolver_reached_by_their_wan(near: Lab) -> None:
    send(near, 1, "Interface:wan1")
    send(near, 2, "Interface:wan2")
    send(near, 3, "DIRECT")
    first, second = near.wan(1).address, near.wan(2).address
    assert asked(near, 1) == (first, {RESOLVERS["device"]})
    assert asked(near, 2) == (second, {RESOLVERS["domestic"]})
    assert asked(near, 3) == (first, {RESOLVERS["device"]})
    assert told(near, 2) == alone(RESOLVERS["domestic"], "by wan2")

    add_by_name(near, {"interface-name": "wan2"})
    send(near, 1, "socks5")
    assert asked_for_the_node(near, 1) == {(RESOLVERS["domestic"], second)}


def test_a_changed_resolver_of_the_device_is_adopted(near: Lab) -> None:
    send(near, 2, "Interface:wan2")
    near.topology.write_etc("router", "resolv.conf", f"nameserver {RESOLVERS['return']}\n")
    eventually(lambda: told(near, 2) == alone(RESOLVERS["return"], "by wan2"), 25)
    assert asked(near, 2) == (near.wan(2).address, {RESOLVERS["return"]})


def test_the_next_resolver_replaces_a_silent_one(namespaces: None) -> None:
    first, second = RESOLVERS["device"], RESOLVERS["quad9"]
    with Lab(LabSpec(nodes=("socks5",), clients=5)) as lab:
        lab.start_egressd({"dns": {"device": [SILENT, first, second]}})
        send(lab, 1, "Interface:wan1")
        send(lab, 2, "Interface:wan2")
        send(lab, 3, "DIRECT")
        ways = {1: lab.wan(1), 2: lab.wan(2), 3: lab.wan(1)}
        add_by_name(lab, {})
        send(lab, 4, "socks5")
        add_by_name(lab, {"interface-name": "wan2"}, "by-wan2")
        send(lab, 5, "by-wan2")

        def all_ask(server: str) -> bool:
            return all(asked(lab, n) == (wan.address, {server}) for n, wan in ways.items())

        def problems() -> set[str]:
            return set(lab.api.ask("GET", "/ops/overview").body["problems"])

        def passed_over(server: str, chosen: str) -> set[str]:
            told = f"resolver {server} does not answer {{}}: {chosen} is asked in its place"
            ways = ("locally",) if server == SILENT else ("by wan1", "by wan2", "directly")
            return {told.format(way) for way in ways}

        eventually(lambda: all_ask(first), 2 * PERIOD_S)
        own = lab.wan(1).address
        eventually(lambda: asked_for_the_node(lab, 4) == {(first, own)})
        eventually(lambda: asked_for_the_node(lab, 5) == {(first, lab.wan(2).address)})
        assert problems() == passed_over(SILENT, first)
        with deaf(lab, first):
            eventually(lambda: all_ask(second), 2 * PERIOD_S)
            eventually(lambda: asked_for_the_node(lab, 4) == {(second, own)})
            assert problems() == passed_over(SILENT, second) | passed_over(first, second)
        eventually(lambda: all_ask(first), 2 * PERIOD_S)
        assert problems() == passed_over(SILENT, first)
        eventually(lambda: asked_for_the_node(lab, 4) == {(first, own)})
        for pid in lab.device.pids("egressd.app netd"):
            os.kill(pid, signal.SIGKILL)
        eventually(lambda: lab.api.ask("GET", "/ops/health").status == 200, 15)
        assert all_ask(first)


def test_p2_a_lost_query_for_a_nodes_address_delays_no_client_for_long(near: Lab) -> None:
    """Past fault: one lost packet to a resolver delayed all new connections through a node by 10 s.
    The engine sends one question, and all who need the name wait for it. The wait is now 4 s, and
    an address that has just expired is used meanwhile.
    """
    add_by_name(near, {})

    def is_through() -> bool:
        reply = near.client(1).http(f"http://{SERVER}/", timeout=1)
        return reply.seen == near.nodes["socks5"].address

    with deaf(near, RESOLVERS["device"]):
        send(near, 1, "socks5")
        assert not is_through()
    eventually(is_through, 5)
    with deaf(near, RESOLVERS["device"]):
        time.sleep(TTL + 0.5)
        assert is_through(), "by the address that has just run out"


@contextmanager
def deaf(lab: Lab, resolver: str) -> Iterator[None]:
    """Drop all packets to a resolver."""
    rule = ("inet", "deaf", "hear", "ip", "daddr", resolver, "drop")
    lab.internet.run("nft", "add", "table", *rule[:2])
    hook = "{ type filter hook prerouting priority 0; }"
    lab.internet.run("nft", "add", "chain", *rule[:3], hook)
    lab.internet.run("nft", "add", "rule", *rule)
    try:
        yield
    finally:
        lab.internet.run("nft", "delete", "table", *rule[:2])


@pytest.mark.parametrize("own", ["DIRECT", "Interface:wan2"])
def test_a_resolver_in_the_lan_queries_others_and_not_itself(namespaces: None, own: str) -> None:
    with Lab(LabSpec(nodes=())) as lab:
        resolver = lab.client(2)
        lab.start_egressd({"dns": {"device": [resolver.address]}})
        send(lab, 1, "DIRECT")
        send(lab, 2, own)
        argv = exec_argv(
            resolver.host.namespace, [sys.executable, "-c", FORWARDER, resolver.address]
        )
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as program:
            try:
                assert program.stdout is not None
                assert program.stdout.readline() == "ready\n"
                for number, asked in enumerate((str(LAN_ADDRESS), RESOLVERS["quad9"])):
                    reply = lab.client(1).dns(f"of-{number}.{WHOAMI}", asked)
                    way = lab.wan(2 if own == "Interface:wan2" else 1)
                    assert reply.addresses == (way.address,)
            finally:
                program.kill()
            assert program.stdout.read().split() == ["asked"] * 2

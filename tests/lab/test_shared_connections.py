"""Nodes that carry all their clients in one connection serve again once they are back."""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from egressd_lab.engine import node_document
from egressd_lab.lab import Lab
from egressd_lab.netns import exec_argv
from egressd_lab.process import Program
from egressd_lab.spec import RESOLVERS, WEB_SERVERS, WHOAMI, LabSpec
from tests.support.device import SERVER, eventually, send
from tests.support.nodes.served import NAME, every
from tests.support.programs import argv_of

pytestmark = pytest.mark.lab

NODES = ("vless grpc", "vless h2", "vless tcp", "vmess tcp")
"""The last two open a connection for each of their clients' connections."""
ADDRESSES = ("198.18.0.1", "198.18.0.2", "198.18.0.3", "198.18.0.4")
PORT = 443
OUTAGE_S = 15.0
"""Seconds. Unacknowledged data is sent again after 12.6 s, and next after 25.4 s (RFC 6298, 5.5;
the first time after 0.2 s).
"""
BACK_S = 5.0


@pytest.fixture(scope="module")
def site(namespaces: None) -> Iterator[tuple[Lab, Program]]:
    """Send client N by node N, and yield the lab and the program of all nodes."""
    with Lab(LabSpec(nodes=(), clients=len(NODES))) as lab:
        certificate, key = lab.authority.certificate(NAME)
        served = [every(certificate, key)[name] for name in NODES]
        lab.topology.add_node("shared", list(ADDRESSES))
        inbounds = [{**each.inbound, "listen_port": PORT} for each in served]
        server = lab.start_engine("node-shared", node_document(inbounds, ADDRESSES))
        lab.start_egressd()
        for n, (each, address) in enumerate(zip(served, ADDRESSES, strict=True), 1):
            config = {"server": address, "port": PORT, **each.fields, "skip-cert-verify": True}
            draft = {"name": f"n{n}", "protocol": each.protocol, "config_json": json.dumps(config)}
            lab.api.post("/nodes", draft)
            send(lab, n, f"n{n}")
        eventually(are_back(lab))
        yield lab, server


def is_served(lab: Lab, client: int) -> bool:
    """True if it reaches a site, and gets an answer to a query."""
    reply = lab.client(client).http(f"http://{SERVER}/", timeout=1)
    name = f"at-{time.monotonic_ns()}.{WHOAMI}"
    return reply.seen == ADDRESSES[client - 1] and bool(
        lab.client(client).dns(name, RESOLVERS["google"], timeout=1).addresses
    )


def ask_in_vain(lab: Lab, seconds: float) -> None:
    until = time.monotonic() + seconds
    asking = itertools.cycle(range(1, len(NODES) + 1))
    while time.monotonic() < until:
        assert not is_served(lab, next(asking))


def are_back(lab: Lab) -> Callable[[], bool]:
    """Return a function that is true once each client has been served since now."""
    waiting = set(range(1, len(NODES) + 1))

    def look() -> bool:
        waiting.difference_update([n for n in waiting if is_served(lab, n)])
        return not waiting

    return look


@contextmanager
def silence(lab: Lab) -> Iterator[None]:
    """Drop all packets to and from the nodes, without errors."""
    hook = "{ type filter hook forward priority 0; }"
    for what in ("table ip silence", f"chain ip silence forward {hook}"):
        lab.internet.run("nft", f"add {what}")
    for end in ("saddr", "daddr"):
        lab.internet.run("nft", f"add rule ip silence forward ip {end} 198.18.0.0/24 drop")
    try:
        yield
    finally:
        lab.internet.run("nft", "delete table ip silence")


def test_p2_a_shared_connection_recovers_after_an_unnoticed_outage(
    site: tuple[Lab, Program],
) -> None:
    """Past fault: after an outage of 2 minutes a gRPC node was still dead 90 s after its return,
    and an HTTP/2 node 14 s after one of 40 s. All clients share one TCP connection there, whose
    retransmission delay doubles. netd ends such connections.
    """
    lab, _ = site
    with silence(lab):
        ask_in_vain(lab, OUTAGE_S)
    eventually(are_back(lab), BACK_S)


def test_p2_a_shared_connection_recovers_after_the_node_ended(site: tuple[Lab, Program]) -> None:
    """Past fault: after a `vless` node over gRPC or HTTP/2 was restarted, its clients had no DNS.
    The engine never finishes an XUDP association that begins without a connection, and all
    questions shared one. They now use TCP there.
    """
    lab, server = site
    server.kill()
    ask_in_vain(lab, 6)
    server.start()
    eventually(are_back(lab), BACK_S)


@pytest.mark.parametrize("client", range(1, len(NODES) + 1), ids=NODES)
def test_datagrams_of_one_socket_reach_each_destination(
    site: tuple[Lab, Program], client: int
) -> None:
    """Past fault: datagrams of one socket to several addresses through a `vmess` node all arrived
    at the first address. XUDP is the default packing now, as for `vless`.
    """
    lab, _ = site
    asker = lab.client(client)
    argv = argv_of("cone", asker.address, "7", *WEB_SERVERS[:2])
    command = exec_argv(asker.host.namespace, argv)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as cone:
        assert cone.stdout is not None
        seen = [cone.stdout.readline().split() for _ in WEB_SERVERS[:2]]
        cone.kill()
    assert seen[0] == seen[1]
    assert seen[0][:1] == [ADDRESSES[client - 1]]

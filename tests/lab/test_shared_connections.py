"""Nodes that carry all their clients in one connection serve again once they are back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from egressd.lab.engine import node_document
from egressd.lab.lab import Lab
from egressd.lab.process import Program
from egressd.lab.spec import RESOLVERS, WHOAMI, LabSpec
from tests.lab.device_state import SERVER, eventually, send
from tests.lab.served import NAME, every
from tests.lab.talks import talking

pytestmark = pytest.mark.lab

NODES = ("vless grpc", "vless h2", "vless tcp")
"""The last one makes a connection for each of its clients'."""
ADDRESSES = ("198.18.0.1", "198.18.0.2", "198.18.0.3")
PORT = 443
OUTAGE_S = 18.0
"""Long enough for the retransmission that was not answered last to be 12.6 s old, and the next one
to be 7 s away."""
BACK_S = 5.0


@pytest.fixture
def site(namespaces: None) -> Iterator[tuple[Lab, Program]]:
    """Client N goes by node N; and the program that all of them are."""
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
    """Whether it reaches a site, and gets an answer to a question."""
    reply = lab.client(client).http(f"http://{SERVER}/", timeout=1)
    name = f"at-{time.monotonic_ns()}.{WHOAMI}"
    return reply.seen == ADDRESSES[client - 1] and bool(
        lab.client(client).dns(name, RESOLVERS["google"], timeout=1).addresses
    )


def ask_in_vain(lab: Lab, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for n, _ in enumerate(NODES, 1):
            assert not is_served(lab, n)


def are_back(lab: Lab) -> Callable[[], bool]:
    """What tells whether each client has been served since this was called."""
    waiting = set(range(1, len(NODES) + 1))

    def look() -> bool:
        waiting.difference_update([n for n in waiting if is_served(lab, n)])
        return not waiting

    return look


@contextmanager
def silence(lab: Lab) -> Iterator[None]:
    """Nothing gets to the nodes or back, and nobody is told."""
    hook = "{ type filter hook forward priority 0; }"
    for what in ("table ip silence", f"chain ip silence forward {hook}"):
        lab.internet.run("nft", f"add {what}")
    for end in ("saddr", "daddr"):
        lab.internet.run("nft", f"add rule ip silence forward ip {end} 198.18.0.0/24 drop")
    try:
        yield
    finally:
        lab.internet.run("nft", "delete table ip silence")


def test_p2_after_an_outage_that_nobody_was_told_of(site: tuple[Lab, Program]) -> None:
    lab, _ = site
    with silence(lab):
        ask_in_vain(lab, OUTAGE_S)
    eventually(are_back(lab), BACK_S)


def test_p2_after_the_node_ended_with_flows_of_udp_under_way(site: tuple[Lab, Program]) -> None:
    lab, server = site
    with ExitStack() as opened:
        talks = [opened.enter_context(talking(lab, n)) for n, _ in enumerate(NODES, 1)]
        for talk, address in zip(talks, ADDRESSES, strict=True):
            talk.is_seen_by(address)
        server.kill()
        ask_in_vain(lab, 6)
        for talk in talks:
            talk.last = ""
        server.start()
        eventually(are_back(lab), BACK_S)
        for talk, address in zip(talks, ADDRESSES, strict=True):
            talk.is_seen_by(address)

"""The engine's UDP answers and this machine's own servers do not affect each other."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from egressd.planner.registry import ANSWER_PORT, LINE_PORTS
from egressd_lab.capture import Capture
from egressd_lab.client import Client
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from egressd_lab.process import Program
from egressd_lab.spec import LAN_ADDRESS, UDP_ECHO_PORTS, LabSpec, Place
from tests.support.device import SERVER, add_nodes, eventually, send
from tests.support.programs import argv_of
from tests.support.programs.dnsmasq import dnsmasq

pytestmark = pytest.mark.lab

NODES = ("socks5-udp", "ss")
OWN = "10.77.0.9"
RUNS = itertools.count(1)
PORTS = tuple(port for port in UDP_ECHO_PORTS if port not in LINE_PORTS)
SERVER_PROGRAM = """
import json, socket, sys
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", int(sys.argv[1])))
print("ready", flush=True)
while True:
    text, caller = server.recvfrom(4096)
    server.sendto(json.dumps({"ip": caller[0]}).encode() + b"\\n" + text, caller)
"""


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=NODES)) as lab:
        lab.start_egressd()
        add_nodes(lab)
        for client, node in enumerate(NODES, start=1):
            send(lab, client, node)
        yield lab


def own(lab: Lab) -> Client:
    """Return the router as a client that queries its own LAN address."""
    return Client(lab.router, Place(name="router", role="router", address=str(LAN_ADDRESS)))


@contextmanager
def server_on(lab: Lab, port: int) -> Iterator[None]:
    """Run a server on any address with an exclusive port, like the router's WireGuard."""
    command = [sys.executable, "-c", SERVER_PROGRAM, str(port)]
    program = Program(lab.router.namespace, command, lab.folder / f"server-{next(RUNS)}.log", {})
    program.start()
    try:
        eventually(lambda: "ready" in program.tail() or not program.running)
        assert program.running, program.tail()
        yield
    finally:
        program.stop(10)


@pytest.mark.parametrize("client", [1, 2])
@pytest.mark.parametrize("port", PORTS)
def test_a_server_on_the_remote_port_takes_no_answers_from_clients(
    lab: Lab, client: int, port: int
) -> None:
    with server_on(lab, port):
        reply = lab.client(client).udp_echo("hello", SERVER, port)
        assert (reply.error, reply.seen) == ("", lab.nodes[NODES[client - 1]].address)
        assert own(lab).udp_echo("hello", str(LAN_ADDRESS), port).ok


@pytest.mark.parametrize("client", [1, 2])
def test_a_server_can_start_on_the_remote_port_of_clients_flows(lab: Lab, client: int) -> None:
    assert lab.client(client).udp_echo("hello", SERVER, 3478, source_port=41_500).ok
    with server_on(lab, 3478):
        assert lab.client(client).udp_echo("hello", SERVER, 3478, source_port=41_500).ok


def test_conntrack_sees_one_flow_with_the_remote_port(lab: Lab) -> None:
    assert lab.client(1).udp_echo("hello", SERVER, 443, source_port=41_501).ok
    assert lab.client(1).udp_echo("hello", SERVER, 443, source_port=41_501).ok
    listed = lab.router.run("conntrack", "-L", "-p", "udp").stdout
    flows = [line for line in listed.splitlines() if "=41501 " in line]
    assert len(flows) == 1
    assert "dport=443 " in flows[0]
    assert "UNREPLIED" not in flows[0]
    assert str(ANSWER_PORT) not in listed


def test_the_routers_resolver_gets_all_queries_for_it(lab: Lab) -> None:
    with dnsmasq(lab, lab.router, f"--address=/own.test/{OWN}"):
        eventually(lambda: own(lab).dns("own.test", str(LAN_ADDRESS), timeout=0.5).ok)
        for _ in range(20):
            assert lab.client(1).dns("www.example.com", str(LAN_ADDRESS)).addresses == (SERVER,)
            assert own(lab).dns("own.test", str(LAN_ADDRESS), timeout=1).addresses == (OWN,)


FORBIDDEN = (
    f"{LAN_ADDRESS}:67",  # the router
    f"{LAN_ADDRESS}:53",
    f"{LAN_ADDRESS}:4000",
    "10.77.0.99:4000",  # another host of the LAN
    "10.77.0.255:4000",
    "198.51.100.2:4000",  # the router at its WANs
    "198.51.100.6:4000",
    "127.0.0.1:4000",
    "224.0.0.251:5353",
    "255.255.255.255:4000",
    "0.0.0.0:4000",
)
ALLOWED = "203.0.113.99:4000"
"""An address that a client's socket may receive from, through a node that accepts any sender."""


@contextmanager
def forger(lab: Lab) -> Iterator[None]:
    """Send client 1 by a node that answers from all these addresses, for the block."""
    command = argv_of("forger", SERVER, "1099", *FORBIDDEN, ALLOWED)
    program = Program(lab.internet.namespace, command, lab.folder / "forger.log", {})
    program.start()
    config = {"name": "forger", "type": "socks5", "server": SERVER, "port": 1099, "udp": True}
    node = {"name": "forger", "protocol": "socks5", "config_json": json.dumps(config), "group": ""}
    try:
        lab.api.post("/nodes", node)
        eventually(lambda: "ready" in program.tail())
        send(lab, 1, "forger")
        yield
    finally:
        send(lab, 1, NODES[0])
        for node in lab.api.get("/nodes")["data"]:
            if node["name"] == "forger":
                lab.api.delete(f"/nodes/{node['id']}")
        program.stop(10)


def test_p1_a_node_cannot_send_in_the_name_of_the_router_or_a_lan_host(lab: Lab) -> None:
    client = lab.client(1)
    with forger(lab), client.host.capture("eth0", keep=True) as capture:
        capture.prove()
        token = new_token()
        for number in range(len(FORBIDDEN) + 1):
            port = 41_600 + number
            # Such an answer could match a flow of the client, which has queried the router itself.
            client.udp_echo(token, str(LAN_ADDRESS), 4000, timeout=0.05, source_port=port)
            assert client.udp_echo(token, SERVER, 4000, source_port=port).ok
        eventually(lambda: ALLOWED.partition(":")[0] in heard(capture, token))
        assert heard(capture, token) == {SERVER, ALLOWED.partition(":")[0]}


def heard(capture: Capture, token: str) -> set[str]:
    """Return the sources of the packets that reached the client."""
    return {flow.source for flow in capture.flows(token, outgoing=False, protocol="udp")}

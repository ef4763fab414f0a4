"""Networks that are neither LAN nor WAN: containers behind a bridge with Docker's own rules, and
the peers of a WireGuard server. LAN, local networks and router reach each other. The operator's
firewall decides about hosts without a rule; a host with a rule is a client as in a LAN.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing

import pytest

from egressd_lab.client import Client
from egressd_lab.host import Host
from egressd_lab.lab import Lab
from egressd_lab.packets import UDP, ipv4, new_token, udp
from egressd_lab.process import Program
from egressd_lab.spec import DISCARD_PORT, LAN_ADDRESS, LabSpec, Place
from tests.lab.containers import CONTAINER, Containers
from tests.lab.wireguard import Peer, peer_lines, raised
from tests.support.device import SERVER, add_nodes, clear, eventually, rule, suspended

pytestmark = pytest.mark.lab

WEB = f"http://{SERVER}/"
PUBLISHED = 8080
DOCKER = f"""
table ip nat {{
    chain DOCKER {{
        iifname "docker0" return
        tcp dport {PUBLISHED} dnat to {CONTAINER}:80
    }}
    chain PREROUTING {{
        type nat hook prerouting priority dstnat
        fib daddr type local jump DOCKER
    }}
    chain POSTROUTING {{
        type nat hook postrouting priority srcnat
        ip saddr 172.17.0.0/16 oifname != "docker0" masquerade
    }}
}}
table ip filter {{
    chain FORWARD {{
        type filter hook forward priority filter; policy drop
        oifname "docker0" ct state related,established accept
        oifname "docker0" ip daddr {CONTAINER} tcp dport 80 accept
        iifname "docker0" accept
        # What people add for their LAN and VPN in DOCKER-USER.
        iifname {{ "lan0", "wg*" }} accept
        oifname {{ "lan0", "wg*" }} accept
    }}
}}
"""


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("ss",))) as lab:
        lab.start_egressd(settings={"local": {"interfaces": ["iot0"]}})
        add_nodes(lab)
        yield lab


@pytest.fixture(scope="module")
def boxes(lab: Lab) -> Iterator[list[Client]]:
    containers = Containers(lab)
    containers.build()
    lab.router.run("nft", "-f", "-", stdin=DOCKER)
    server = Program(
        containers.clients[0].host.namespace,
        [sys.executable, "-m", "http.server", "80"],
        lab.folder / "container.log",
        {},
    )
    server.start()
    try:
        eventually(lambda: role_of(lab, "docker0") == "local")
        eventually(lambda: containers.clients[1].http(f"http://{CONTAINER}/").status == 200)
        yield containers.clients
    finally:
        server.stop(10)
        for client in containers.clients:
            client.host.close()
        lab.router.run("nft", "delete", "table", "ip", "nat", check=False)
        lab.router.run("nft", "delete", "table", "ip", "filter", check=False)


@pytest.fixture(autouse=True)
def no_rules(lab: Lab) -> Iterator[None]:
    yield
    clear(lab)
    add_nodes(lab)


def role_of(lab: Lab, name: str) -> str:
    found = lab.api.ask("GET", "/ops/overview").body["interfaces"]
    return next((str(each["role"]) for each in found if each["name"] == name), "")


def exits(lab: Lab) -> dict[str, str]:
    return {
        "ss": lab.nodes["ss"].address,
        "DIRECT": lab.wan(1).address,
        "Interface:wan2": lab.wan(2).address,
        "Interface:wan9": "",
        "REJECT": "",
    }


@pytest.mark.parametrize("target", ["DIRECT", "ss", "REJECT"])
def test_a_published_port_is_reached_from_the_lan(
    lab: Lab, boxes: list[Client], target: str
) -> None:
    rule(lab, lab.client(1).address, target)
    eventually(lambda: lab.client(1).http(f"http://{LAN_ADDRESS}:{PUBLISHED}/").status == 200)
    assert lab.client(1).http(f"http://{CONTAINER}/").status == 200
    assert lab.client(1).ping(CONTAINER).ok


def test_containers_reach_the_lan_and_its_clients(lab: Lab, boxes: list[Client]) -> None:
    assert boxes[0].ping(lab.client(1).address).ok
    assert boxes[0].http(f"http://{LAN_ADDRESS}:8787/ops/health").status == 200


def test_hosts_without_a_rule_are_left_to_the_operators_firewall(
    lab: Lab, boxes: list[Client]
) -> None:
    assert boxes[0].http(WEB).seen == lab.wan(1).address
    rule(lab, boxes[0].address, "REJECT")
    assert boxes[1].http(WEB).seen == lab.wan(1).address
    lab.device.stop()
    try:
        assert boxes[1].http(WEB, timeout=1).error, "a client is in their network"
    finally:
        lab.device.start()
    eventually(lambda: boxes[1].http(WEB, timeout=1).seen == lab.wan(1).address)
    clear(lab)
    lab.device.stop()
    try:
        assert boxes[1].http(WEB).seen == lab.wan(1).address
    finally:
        lab.device.start()


@pytest.mark.parametrize("target", ["ss", "DIRECT", "Interface:wan2", "Interface:wan9", "REJECT"])
@pytest.mark.parametrize("covering", [f"{CONTAINER}", f"{CONTAINER}/31"])
def test_a_rule_makes_a_container_a_client(
    lab: Lab, boxes: list[Client], target: str, covering: str
) -> None:
    rule(lab, covering, target)
    with lab.internet.capture() as capture:
        capture.prove()
        token = new_token()
        results = boxes[0].every_way(token)
        assert results["tcp/80"].seen == exits(lab)[target]
        allowed = {wan.far for wan in lab.wans if wan.address == exits(lab)[target]}
        allowed |= {node.link for node in lab.nodes.values() if node.address == exits(lab)[target]}
        flows = capture.flows(token, outgoing=False)
        assert {flow.interface for flow in flows} <= allowed
        assert {flow.source for flow in flows} <= {
            exits(lab)[target],
            lab.wan(1).address if target == "ss" else "",
        }
    assert boxes[0].ping(lab.client(1).address).ok


@pytest.mark.parametrize("target", ["ss", "Interface:wan2"])
def test_speed_limits_apply_to_containers(lab: Lab, boxes: list[Client], target: str) -> None:
    size, kbps = 250_000, 2_000
    limits = {"upload_limit_kbps": kbps, "download_limit_kbps": kbps}
    lab.api.post("/rules", {"ip": CONTAINER, "target_node": target, **limits})
    reply = boxes[0].http(f"{WEB}bytes/{size}", timeout=30)
    assert reply.size == size
    assert reply.seconds > 0.7 * size * 8 / (kbps * 1_000)
    assert boxes[1].http(f"{WEB}bytes/{size}").seconds < reply.seconds / 2


def test_p1_a_container_client_is_blocked_while_the_table_is_gone(
    lab: Lab, boxes: list[Client]
) -> None:
    for target in ("ss", "Interface:wan2", "DIRECT"):
        rule(lab, CONTAINER, target)
        with lab.internet.capture() as capture:
            capture.prove()
            with suspended(lab, "egressd.app netd"):
                for table in ("inet egressd", "ip nat"):
                    lab.router.run("nft", "flush", "table", *table.split())
                token = new_token()
                boxes[0].every_way(token)
                assert capture.flows(token) == []
        lab.router.run("nft", "delete", "table", "ip", "nat")
        lab.router.run("nft", "delete", "table", "ip", "filter")
        lab.router.run("nft", "-f", "-", stdin=DOCKER)
        eventually(lambda: boxes[0].http(WEB, timeout=1).ok)


def test_p1_a_container_client_is_blocked_on_a_stopped_device(
    lab: Lab, boxes: list[Client]
) -> None:
    rule(lab, CONTAINER, "Interface:wan2")
    lab.device.stop()
    try:
        with lab.internet.capture() as capture:
            capture.prove()
            token = new_token()
            boxes[0].every_way(token)
            assert capture.flows(token) == []
    finally:
        lab.device.start()
    eventually(lambda: boxes[0].http(WEB, timeout=1).seen == lab.wan(2).address)


def test_wireguard_peers_reach_the_lan_and_can_be_clients(lab: Lab) -> None:
    name = f"wg{lab.name}"[:12]
    away = Host(lab.name, "node-ss", lab.folder)
    server = Peer(lab.router, lab.folder, f"{name}a", "10.201.0.1/24")
    caller = Peer(away, lab.folder, f"{name}b", "10.201.0.2/24")
    server.configure(*peer_lines(caller, "10.201.0.2/32"), port=51820)
    caller.configure(
        *peer_lines(server, "10.77.0.0/24", SERVER, endpoint=f"{lab.wan(1).address}:51820")
    )
    phone = Client(away, Place(name="phone", role="node-ss", address="10.201.0.2"))
    with raised(server, caller), closing(away):
        eventually(lambda: role_of(lab, server.name) == "local")
        eventually(lambda: phone.ping(lab.client(1).address, timeout=1).ok)
        assert lab.client(1).ping("10.201.0.2").ok
        rule(lab, "10.201.0.2", "Interface:wan2")
        assert phone.http(WEB).seen == lab.wan(2).address
        rule(lab, "10.201.0.2", "REJECT")
        assert phone.http(WEB, timeout=1).error
        assert phone.ping(lab.client(1).address).ok


def test_a_configured_interface_is_a_local_network(lab: Lab) -> None:
    lab.topology.ip("router", ["link add iot0 type bridge", "link set iot0 up"])
    try:
        lab.topology.ip("router", ["address add 192.168.50.1/24 dev iot0"])
        eventually(lambda: role_of(lab, "iot0") == "local")
    finally:
        lab.topology.ip("router", ["link del iot0"])


@pytest.mark.parametrize("target", ["DIRECT", "ss"])
def test_a_container_cannot_answer_in_the_name_of_the_remote_end(
    lab: Lab, boxes: list[Client], target: str
) -> None:
    client, wan = lab.client(1), lab.wan(1)
    rule(lab, client.address, target)
    with client.host.capture("eth0") as heard, boxes[0].host.capture("eth0") as sent:
        for _ in range(2):
            client.raw(client.address, SERVER, port=DISCARD_PORT, source_port=40_001)
        token = new_token()
        to = wan.address if target == "DIRECT" else client.address
        forged = ipv4(SERVER, to, UDP, udp(DISCARD_PORT, 40_001, token.encode()))
        boxes[0].host.emit("eth0", forged, mac=lab.router.mac("docker0"))
        assert sent.flows(token)
        heard.prove()
        assert heard.flows(token) == []

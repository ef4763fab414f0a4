"""Interfaces that change their role, name or networks: no client leaves without its rule.

Most tests are about detected roles: the configuration names no interface.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from egressd_lab.capture import Capture
from egressd_lab.client import Client
from egressd_lab.lab import Lab
from egressd_lab.netns import exec_argv
from egressd_lab.packets import new_token
from egressd_lab.spec import LAN_ADDRESS, LabSpec
from tests.support.device import SERVER, add_nodes, clear, eventually, port_forward, send

pytestmark = pytest.mark.lab

WEB: Final = f"http://{SERVER}/"
FOUND: Final[dict[str, dict[str, object]]] = {"lan": {"interfaces": []}, "wan": {"interfaces": []}}
GUESTS: Final = "10.78.0.0/24"
LOCAL: Final = ("10.", "192.168.")
_AFTER_S: Final = 1.5
"""Seconds of checks after a change. An event is handled in a hundredth of them."""

ECHO: Final = """
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect((sys.argv[1], 7))
while True:
    try:
        s.send(b"still there")
    except OSError:
        pass
    time.sleep(0.01)
"""
"""Sends to the echo server, with or without answers."""

SERVE: Final = """
import socket
s = socket.create_server(("0.0.0.0", 8022))
print("ready", flush=True)
while True:
    c, _ = s.accept()
    while data := c.recv(100):
        c.sendall(data)
"""


def seen(lab: Lab, client: int, patience: float = 0.5) -> str:
    """Return the source address of a client's request, or an empty text when it is blocked or has
    no answer in `patience` seconds.
    """
    return lab.client(client).http(WEB, timeout=patience).seen


@contextmanager
def flooding(lab: Lab, *clients: Client) -> Iterator[Capture]:
    """Let these clients flood, and capture the internet's side. No packet of theirs may leave with
    an address of their own. In one-arm use the device's own queries bear its address in the LAN.
    """
    with lab.internet.capture() as capture:
        capture.prove()
        floods = [
            client.flood(new_token(), kind=kind, rate=300)
            for client in clients
            for kind in ("udp", "icmp")
        ]
        yield capture
        time.sleep(_AFTER_S)
        assert all(flood.stop().sent > 100 for flood in floods)
        arrived = [flow for flow in capture.read().flows if not flow.outgoing]
        local = [flow for flow in arrived if flow.source.startswith(LOCAL)]
        if lab.spec.one_arm:
            local = [flow for flow in local if flow.token or flow.source != str(LAN_ADDRESS)]
        assert local == []


@contextmanager
def running(client: Client, program: str, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a client's namespace, and end it with the block."""
    argv = exec_argv(client.host.namespace, [sys.executable, "-c", program, *arguments])
    process = subprocess.Popen(argv, stdout=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def knows_the_router(lab: Lab, client: Client, interface: str, address: str) -> None:
    """Let a client continue to send to the router while the router has no address for ARP."""
    mac = lab.router.run("cat", f"/sys/class/net/{interface}/address").stdout.strip()
    neighbour = ("ip", "neigh", "replace", address, "lladdr", mac, "dev", "eth0")
    client.host.run(*neighbour, "nud", "permanent")


def next_netd(lab: Lab) -> None:
    """Kill netd, and wait for the next one."""
    os.kill(lab.device.pids("egressd.app netd")[0], signal.SIGKILL)
    lab.device.wait_healthy()


def router(lab: Lab, *commands: str) -> None:
    """Run commands of ip(8) on the router."""
    for command in commands:
        lab.router.run("ip", *command.split())


# --- Detected roles. ------------------------------------------------------------------------


def test_p1_a_one_arm_device_stays_so_when_another_interface_comes(namespaces: None) -> None:
    with Lab(LabSpec(one_arm=True, wans=1, nodes=("ss",), clients=3)) as lab:
        lab.start_egressd(FOUND)
        add_nodes(lab)
        send(lab, 1, "REJECT")
        send(lab, 2, "ss")
        with flooding(lab, lab.client(1), lab.client(3)):
            router(
                lab,
                "link add wlan0 type bridge",
                "address add 192.168.50.1/24 dev wlan0",
                "link set wlan0 up",
            )
        for _ in range(2):
            assert (seen(lab, 1), seen(lab, 2)) == ("", lab.nodes["ss"].address)
            next_netd(lab)


def test_p1_a_wan_without_its_route_is_no_lan_for_the_next_netd(namespaces: None) -> None:
    """Past fault: the next netd took a found WAN that had lost its default route for a LAN,
    reachable by every client without a rule. The table now names all WANs that were ever found.
    """
    with Lab(LabSpec(nodes=(), clients=2)) as lab:
        lab.start_egressd(FOUND)
        router(lab, "address add 192.168.50.1/24 dev wan2", "route del default dev wan2")
        send(lab, 1, "REJECT")

        for _ in range(2):
            with flooding(lab, lab.client(1)):
                assert "192.168.50.0/24" not in lab.router.run("nft", "list", "ruleset").stdout
            next_netd(lab)


def test_p1_a_lan_that_gets_a_default_route_is_not_forwarded_unruled(namespaces: None) -> None:
    with Lab(LabSpec(nodes=(), clients=3, second_lan=True)) as lab:
        lab.start_egressd(FOUND)
        send(lab, 1, "REJECT")
        send(lab, 2, "Interface:wan2")
        with flooding(lab, lab.client(1), lab.client(3)):
            router(lab, "route add default via 10.77.0.250 dev lan0 metric 5000")
        assert seen(lab, 1) == seen(lab, 3) == ""
        assert seen(lab, 2) in ("", lab.wan(2).address)


def test_p1_a_second_lan_is_not_forwarded_before_it_is_known(namespaces: None) -> None:
    with Lab(LabSpec(nodes=(), clients=1, second_lan=True)) as lab:
        router(lab, "address flush dev lan1")
        lab.start_egressd(FOUND)
        lab.api.post("/rules", {"ip": GUESTS, "target_node": "REJECT"})
        guest = lab.guest(1)
        knows_the_router(lab, guest, "lan1", "10.78.0.1")
        with flooding(lab, guest):
            time.sleep(0.5)
            router(lab, "address add 10.78.0.1/24 dev lan1")
        lab.api.post("/rules", {"ip": guest.address, "target_node": "DIRECT"})
        eventually(lambda: guest.http(WEB, timeout=0.5).seen == lab.wan(1).address)


def test_p1_a_lan_with_another_name_than_configured_is_not_forwarded(
    namespaces: None,
) -> None:
    """Past fault: a LAN whose name at boot differed from the configured one had no role, and its
    clients were forwarded without rules.
    """
    with Lab(LabSpec(nodes=(), clients=3)) as lab:
        router(lab, "link set lan0 down", "link set lan0 name eth7", "link set eth7 up")
        lab.start_egressd()
        send(lab, 1, "REJECT")
        send(lab, 2, "Interface:wan2")
        with flooding(lab, lab.client(1), lab.client(2), lab.client(3)):
            knows_the_router(lab, lab.client(1), "eth7", str(LAN_ADDRESS))
        problems = lab.api.ask("GET", "/ops/overview").body["problems"]
        assert any("LAN lan0 is not there" in problem for problem in problems)
        router(lab, "link set eth7 down", "link set eth7 name lan0", "link set lan0 up")
        eventually(lambda: seen(lab, 2) == lab.wan(2).address)
        assert seen(lab, 1) == seen(lab, 3) == ""
        assert not lab.api.ask("GET", "/ops/overview").body["problems"]


def test_p1_a_client_with_a_rule_in_a_network_that_is_no_lan_is_blocked(namespaces: None) -> None:
    with Lab(LabSpec(nodes=(), clients=1, second_lan=True)) as lab:
        lab.start_egressd({"lan": {"interfaces": ["lan0"]}})
        guest = lab.guest(1)
        lab.api.post("/rules", {"ip": guest.address, "target_node": "Interface:wan2"})
        with flooding(lab, guest):
            knows_the_router(lab, guest, "lan1", "10.78.0.1")


def test_p1_an_interface_with_an_odd_name_is_not_forwarded_from(namespaces: None) -> None:
    with Lab(LabSpec(nodes=(), clients=1, second_lan=True)) as lab:
        router(lab, "link set lan1 down", "link set lan1 name lan+1", "link set lan+1 up")
        lab.start_egressd(FOUND)
        knows_the_router(lab, lab.guest(1), "lan+1", "10.78.0.1")
        with flooding(lab, lab.guest(1)):
            pass


def test_clients_stay_served_when_the_lans_address_moves_to_a_bridge(namespaces: None) -> None:
    with Lab(LabSpec(nodes=("ss",), clients=2)) as lab:
        lab.start_egressd(FOUND)
        add_nodes(lab)
        send(lab, 1, "DIRECT")
        send(lab, 2, "ss")
        lab.topology.ip(
            "router",
            [
                "link add br-lan type bridge mcast_snooping 0",
                "link set br-lan up",
                "link set p-client1 master br-lan",
                "link set p-client2 master br-lan",
                f"address del {LAN_ADDRESS}/24 dev lan0",
                f"address add {LAN_ADDRESS}/24 dev br-lan",
            ],
        )
        for number in (1, 2):
            lab.client(number).host.run("ip", "neigh", "flush", "all")
        due = (lab.wan(1).address, lab.nodes["ss"].address)
        eventually(lambda: (seen(lab, 1), seen(lab, 2)) == due)
        with subprocess.Popen(
            exec_argv(lab.router.namespace, ["timeout", "3", "ip", "monitor", "route"]),
            stdout=subprocess.PIPE,
        ) as said:
            for _ in range(20):
                assert (seen(lab, 1, patience=5), seen(lab, 2, patience=5)) == due
            assert said.communicate()[0].splitlines() == [], "netd has nothing left to do"


# --- Networks and gateways. -----------------------------------------------------------------


def test_p1_answers_for_a_former_network_of_the_lan_leave_by_no_wan(namespaces: None) -> None:
    with Lab(LabSpec(nodes=(), clients=2)) as lab:
        lab.start_egressd()
        send(lab, 2, "Interface:wan2")
        knows_the_router(lab, lab.client(2), "lan0", str(LAN_ADDRESS))
        with running(lab.client(2), ECHO, SERVER), lab.internet.capture() as capture:
            capture.prove()
            time.sleep(0.5)
            answers = [f for f in capture.read().flows if f.source == SERVER and f.outgoing]
            assert answers, "nobody answered"
            router(
                lab, "address add 10.99.0.1/24 dev lan0", f"address del {LAN_ADDRESS}/24 dev lan0"
            )
            time.sleep(_AFTER_S)
            arrived = [flow for flow in capture.read().flows if not flow.outgoing]
            assert [flow for flow in arrived if flow.destination.startswith(LOCAL)] == []


@pytest.mark.parametrize(
    "more",
    [
        "address {} 10.77.0.254/32 dev lan0",
        "address {} 10.77.0.2/16 dev lan0",
        "route {} 10.77.0.200/32 dev lan0",
        "route {} 10.0.0.0/8 via 10.77.0.200 dev lan0",
    ],
)
def test_networks_of_a_lan_may_contain_each_other(lab: Lab, more: str) -> None:
    send(lab, 1, "DIRECT")
    send(lab, 2, "Interface:wan2")
    router(lab, more.format("add"))
    try:
        lab.api.post("/rules", {"ip": "10.77.0.240/28", "target_node": "REJECT"})
        next_netd(lab)
        lab.router.run("nft", "delete", "table", "inet", "egressd")
        eventually(lambda: seen(lab, 1) == lab.wan(1).address)
        assert seen(lab, 2) == lab.wan(2).address
    finally:
        router(lab, more.format("del"))
        lab.api.delete("/rules/batch", {"ips": ["10.77.0.240/28"]})
    eventually(lambda: seen(lab, 1) == lab.wan(1).address)


def test_the_gateway_of_a_wan_may_be_outside_its_networks(lab: Lab) -> None:
    wan = lab.wan(2)
    send(lab, 2, "Interface:wan2")
    router(
        lab,
        f"address flush dev {wan.interface}",
        f"address add {wan.address}/32 dev {wan.interface}",
        f"route add default via {wan.gateway} dev {wan.interface} onlink metric 200",
    )
    eventually(lambda: seen(lab, 2) == wan.address)
    wan.delete()
    wan.recreate()
    eventually(lambda: seen(lab, 2) == wan.address)


def test_an_inbound_flow_continues_when_rules_begin_to_name_its_wan(lab: Lab) -> None:
    clear(lab)
    send(lab, 1, "DIRECT")
    forward = f"iifname wan2 tcp dport 8022 dnat to {lab.client(1).address}"
    with port_forward(lab, forward), running(lab.client(1), SERVE) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == b"ready\n"
        with lab.internet.socket(lab.wan(2).address, 8022) as caller:
            caller.settimeout(5)

            def still_there() -> None:
                caller.sendall(b"hi")
                assert caller.recv(10) == b"hi"

            still_there()
            send(lab, 2, "Interface:wan2")
            still_there()
            send(lab, 2, "DIRECT")
            still_there()
            next_netd(lab)
            time.sleep(_AFTER_S)
            still_there()

"""Clients of VPN lines: their exit address, and their block when the line is down.

A pair of veth interfaces stands in for the tunnel (`tests.lab.stand_in_line`). `tests/vm` dials
lines with real daemons.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from egressd.model.errors import Failed
from egressd_lab.capture import Capture
from egressd_lab.device import API_PORT
from egressd_lab.lab import Lab
from egressd_lab.spec import LAN_ADDRESS, RESOLVERS, WHOAMI
from tests.lab.stand_in_line import ADDRESS, DRAFT, FAR_END, KEYS, MTU, TARGET, down, up
from tests.support.device import SERVER, clear, eventually, segments, send

pytestmark = pytest.mark.lab

WEB = f"http://{SERVER}/"
AT_ONCE = ("ECONNREFUSED", "EHOSTUNREACH")
"""Errors of a client of a line that is down: nftables' reset, or the routing table's."""


@pytest.fixture(autouse=True)
def _line(lab: Lab) -> Iterator[None]:
    lab.api.post("/vpn-lines", DRAFT)
    send(lab, 1, TARGET)
    yield
    clear(lab)
    lab.api.delete("/vpn-lines", {"items": KEYS})
    down(lab)


def seen(lab: Lab) -> str:
    reply = lab.client(1).http(WEB, timeout=2)
    return reply.seen or reply.error


def carried(lab: Lab) -> bool:
    return seen(lab) == ADDRESS


def test_a_line_blocks_while_it_is_down_and_carries_when_it_is_up(lab: Lab) -> None:
    assert seen(lab) in AT_ONCE
    up(lab)
    assert eventually(lambda: carried(lab)) < 3
    assert lab.client(1).udp_echo("hello", SERVER).seen == ADDRESS
    down(lab)
    assert seen(lab) in AT_ONCE
    up(lab)
    assert eventually(lambda: carried(lab)) < 3


def test_a_line_is_online_while_its_interface_has_an_address(lab: Lab) -> None:
    def is_online() -> bool:
        (line,) = lab.api.get("/vpn-lines")["data"]
        return bool(line["is_online"])

    eventually(lambda: not is_online())  # the test before had an interface of that name
    up(lab)
    eventually(is_online)
    told = lab.api.ask("GET", "/ops/overview").body["lines"]["l2tp_1"]
    assert told["ip"] == ADDRESS
    assert told["state"] != "online"  # this is the state of egressd's own daemons
    down(lab)
    eventually(lambda: not is_online())


def test_a_disabled_line_blocks_while_its_interface_still_exists(lab: Lab) -> None:
    up(lab)
    eventually(lambda: carried(lab))
    lab.api.patch("/vpn-lines/status", {"items": KEYS, "is_enabled": False})
    assert seen(lab) in AT_ONCE
    lab.api.patch("/vpn-lines/status", {"items": KEYS, "is_enabled": True})
    eventually(lambda: carried(lab))  # once the interface dialled before is gone


def test_a_rename_renames_the_target_and_blocks_without_the_interface(
    lab: Lab,
) -> None:
    up(lab)
    eventually(lambda: carried(lab))
    renamed = {**DRAFT, "name": "l2tp_new", "is_enabled": True}
    lab.api.put("/vpn-lines/l2tp/l2tp_1", renamed)
    assert lab.api.get("/rules")["data"][0]["target_node"] == "Interface:l2tp_new"
    assert seen(lab) in AT_ONCE
    lab.api.put("/vpn-lines/l2tp/l2tp_new", {**renamed, "name": "l2tp_1"})
    eventually(lambda: carried(lab))


def test_the_carrier_of_a_line_still_reaches_its_neighbours(lab: Lab) -> None:
    """It uses its own address, which the line's packets have, and works without a gateway too."""
    manage = ("192.168.50.1", "192.168.50.7", "manage0")
    lab.router.run("ip", "link", "add", manage[2], "type", "veth", "peer", "name", "manage1")
    try:
        lab.router.run("ip", "link", "set", "manage1", "up")
        lab.router.run("ip", "address", "add", f"{manage[0]}/24", "dev", manage[2])
        lab.router.run("ip", "link", "set", manage[2], "up")
        line = {**DRAFT, "interface": manage[2], "is_enabled": True}
        lab.api.put("/vpn-lines/l2tp/l2tp_1", line)

        def way(source: str, target: str) -> str:
            return lab.router.run("ip", "route", "get", target, "from", source, check=False).stdout

        eventually(lambda: not way(manage[0], SERVER))  # and by no other WAN
        eventually(lambda: f"dev {manage[2]}" in way(manage[0], manage[1]))
        lab.api.put("/vpn-lines/l2tp/l2tp_1", {**line, "interface": "wan1"})
        wan = lab.wan(1)
        eventually(lambda: f"via {wan.gateway} dev wan1" in way(wan.address, SERVER))
        eventually(lambda: "via" not in way(wan.address, wan.gateway))
    finally:
        lab.router.run("ip", "link", "delete", manage[2])


def test_a_line_with_an_address_in_the_lan_blocks(lab: Lab) -> None:
    up(lab, line=lab.client(2).address)
    try:
        with pytest.raises(AssertionError):
            eventually(lambda: carried(lab), 2)
        assert seen(lab) in AT_ONCE
        assert not lab.api.get("/vpn-lines")["data"][0]["is_online"]
    finally:
        down(lab)
    up(lab)
    assert eventually(lambda: carried(lab)) < 3


@pytest.mark.parametrize("own", [True, False])
def test_a_peer_may_have_the_address_of_a_lan_host(lab: Lab, own: bool) -> None:
    neighbour = lab.client(2)
    up(lab, far_end=str(LAN_ADDRESS) if own else neighbour.address)
    assert eventually(lambda: carried(lab)) < 3
    send(lab, 2, "Interface:wan2")
    eventually(lambda: neighbour.http(WEB, timeout=2).seen == lab.wan(2).address)


@pytest.mark.parametrize("far_end", [SERVER, RESOLVERS["device"], RESOLVERS["google"]])
def test_a_host_with_the_peers_address_stays_reachable(lab: Lab, far_end: str) -> None:
    send(lab, 2, "DIRECT")
    up(lab, far_end=far_end)
    eventually(lambda: carried(lab))

    def way_to_it() -> str:
        return lab.router.run("ip", "route", "get", far_end).stdout

    eventually(lambda: "dev wan1" in way_to_it())
    assert lab.client(2).http(WEB).seen == lab.wan(1).address
    question = f"far-{far_end.replace('.', '-')}.{WHOAMI}"
    assert lab.client(2).dns(question, RESOLVERS["google"]).addresses == (lab.wan(1).address,)
    assert carried(lab)
    lab.router.run("ip", "link", "set", "l2tp_1", "down")
    lab.router.run("ip", "link", "set", "l2tp_1", "up")  # the kernel adds its route again
    eventually(lambda: carried(lab))
    eventually(lambda: "dev wan1" in way_to_it())


def test_rp_filter_is_switched_off_again(lab: Lab) -> None:
    up(lab)
    eventually(lambda: carried(lab))
    check = "net.ipv4.conf.l2tp_1.rp_filter"
    lab.router.run("sysctl", "-qw", f"{check}=1")
    eventually(lambda: lab.router.run("sysctl", "-n", check).stdout.strip() == "0")
    assert carried(lab)


def test_a_flow_to_a_lines_address_leaves_once_that_is_gone(lab: Lab) -> None:
    send(lab, 2, "DIRECT")
    up(lab, line=SERVER)
    eventually(lambda: lab.api.get("/vpn-lines")["data"][0]["is_online"])
    assert not _is_answered(lab)  # and is tracked as a flow to the router
    down(lab)
    eventually(lambda: _is_answered(lab), 10)


_ASK = """
import socket, sys
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.bind(("", 40_123))
asking.connect((sys.argv[1], 7))
asking.settimeout(1)
asking.send(b"hello")
asking.recv(4096)
"""


def _is_answered(lab: Lab) -> bool:
    """True if the server answers client 2, which asks by UDP and always from the same port."""
    run = lab.client(2).host.run(sys.executable, "-c", _ASK, SERVER, check=False)
    return run.returncode == 0


def test_the_mss_is_clamped_in_both_directions(lab: Lab) -> None:
    up(lab)
    eventually(lambda: carried(lab))
    assert segments(lab, 1) == (1356, MTU - 40)
    send(lab, 1, "Interface:wan1")
    assert segments(lab, 1) == (1460, 1460)


@pytest.mark.parametrize(
    ("profile", "servers", "resolver", "way"),
    [
        ("auto", [], "device", ADDRESS),
        ("outbound", [], "overseas", ADDRESS),
        ("return", [], "return", ADDRESS),
        ("custom", [RESOLVERS["quad9"]], "quad9", ADDRESS),
        ("domestic", [], "domestic", "wan1"),
    ],
)
def test_dns_follows_the_profile_of_the_line(
    lab: Lab, profile: str, servers: list[str], resolver: str, way: str
) -> None:
    up(lab)
    eventually(lambda: carried(lab))
    body = {**DRAFT, "dns_profile": profile, "dns_servers": servers, "is_enabled": True}
    lab.api.put("/vpn-lines/l2tp/l2tp_1", body)
    expected = lab.wan(1).address if way == "wan1" else way
    for asked in (str(LAN_ADDRESS), RESOLVERS["google"]):
        name, mark = f"of-{profile}.{WHOAMI}", lab.internet.mark()
        reply = lab.client(1).dns(name, asked)
        assert (reply.error, reply.addresses) == ("", (expected,))
        # The device itself asks resolvers by the line, too, whether any answers.
        questions = lab.internet.seen(since=mark, service="dns", text=name)
        answered = {seen.server for seen in questions}
        assert answered == {RESOLVERS[resolver]}
    down(lab)
    question = f"down-{profile}.{WHOAMI}", RESOLVERS["google"]
    if profile != "domestic":
        assert lab.client(1).dns(*question).error
    # Direct queries learn of the line's state once netd knows it.
    eventually(lambda: bool(lab.client(1).dns(*question).error))


def test_a_proxy_service_on_a_line_that_is_down_is_blocked(lab: Lab) -> None:
    draft = {
        "name": "office",
        "outbound_interface": "l2tp_1",
        "port": 18080,
        "username": "",
        "password": "",
        "is_enabled": True,
    }
    made = lab.api.post("/proxy-services", draft)
    try:
        assert "200" not in _by_proxy(lab)
        up(lab)
        eventually(lambda: "200" in _by_proxy(lab))
        asked = lab.internet.seen(service="http", text="/by-proxy")
        assert {seen.source for seen in asked} == {ADDRESS}
        down(lab)
        assert "200" not in _by_proxy(lab)
    finally:
        lab.api.delete(f"/proxy-services/{made['id']}")


def _by_proxy(lab: Lab) -> str:
    """Return the head of the answer to a request through the proxy service."""
    with lab.client(1).host.socket(str(LAN_ADDRESS), 18080, 5) as connected:
        connected.settimeout(5)
        connected.sendall(f"GET {WEB}by-proxy HTTP/1.1\r\nHost: {SERVER}\r\n\r\n".encode())
        try:
            return connected.recv(64).decode()
        except OSError:
            return ""


def test_the_peer_cannot_reach_the_router_or_provoke_an_answer_by_a_wan(lab: Lab) -> None:
    up(lab)
    eventually(lambda: carried(lab))
    with lab.internet.capture("far1") as line, lab.router.capture("wan1") as wan:
        for port in (API_PORT, 9):
            with pytest.raises(Failed):
                lab.internet.socket(ADDRESS, port, 1.0)
        lab.internet.run("ping", "-c1", "-W1", ADDRESS, check=False)
        assert [f for f in line.flows() if f.outgoing and f.destination == ADDRESS], "blind"
        # netd's own queries to check resolvers leave by the line.
        drawn = [f for f in line.flows() if not f.outgoing and f.source == ADDRESS]
        assert [f for f in drawn if (f.protocol, f.port) != ("udp", 53)] == []
        assert [f for f in wan.flows() if ADDRESS in (f.source, f.destination)] == []


@pytest.fixture
def containers(lab: Lab) -> Iterator[str]:
    """Yield an address in a network behind the router that is not egressd's."""
    lab.router.run("ip", "link", "add", "docker0", "type", "veth", "peer", "name", "docker1")
    for end in ("docker0", "docker1"):
        lab.router.run("ip", "link", "set", end, "arp", "off", "up")
    lab.router.run("ip", "address", "add", "172.17.0.1/16", "dev", "docker0")
    yield "172.17.0.2"
    lab.router.run("nft", "delete", "table", "ip", "forwards", check=False)
    lab.router.run("ip", "link", "delete", "docker0")


_FORWARD = """
table ip forwards {{
    chain pre {{
        type nat hook prerouting priority dstnat
        ip daddr {own} udp dport 4000 dnat to {inside}:5000
    }}
}}
"""
_SEND = """
import socket, sys
socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"hello", (sys.argv[1], 4000))
"""


def test_the_peer_reaches_other_networks_by_port_forwards_only(lab: Lab, containers: str) -> None:
    def reached(seen: Capture) -> list[tuple[str, int]]:
        return [(f.destination, f.port) for f in seen.flows() if f.source == FAR_END]

    up(lab)
    eventually(lambda: carried(lab))
    lab.internet.run("ip", "route", "replace", f"{containers}/32", "dev", "far1")
    lab.router.run("nft", "-f", "-", stdin=_FORWARD.format(own=ADDRESS, inside=containers))
    with lab.router.capture("docker0") as inside:
        lab.internet.run("ping", "-c1", "-W1", "-I", FAR_END, containers, check=False)
        lab.internet.run(sys.executable, "-c", _SEND, containers)
        lab.internet.run(sys.executable, "-c", _SEND, ADDRESS)
        eventually(lambda: bool(reached(inside)))
        assert reached(inside) == [(containers, 5000)]
    assert carried(lab)


def test_an_expired_packet_from_the_peer_causes_no_error_by_a_wan(lab: Lab) -> None:
    up(lab)
    eventually(lambda: carried(lab))
    stranger, beyond = "100.98.0.7", "198.18.5.5"
    lab.internet.run("ip", "address", "add", f"{stranger}/32", "dev", "lo")
    lab.internet.run("ip", "route", "replace", beyond, "dev", "far1")
    try:
        with lab.internet.capture("far1") as line, lab.router.capture("wan1") as wan:
            ping = ("ping", "-t", "1", "-c1", "-W1", "-I", stranger, beyond)
            lab.internet.run(*ping, check=False)
            assert [f for f in line.flows() if f.outgoing and f.destination == beyond], "blind"
            assert [f for f in wan.flows() if stranger in (f.source, f.destination)] == []
    finally:
        lab.internet.run("ip", "address", "delete", f"{stranger}/32", "dev", "lo")


def test_a_line_that_is_not_online_has_a_reason(lab: Lab) -> None:
    def state() -> dict[str, object]:
        return next(r for r in lab.api.ask("GET", "/ops/lines").body["data"])

    eventually(lambda: state()["state"] in ("missing", "unreachable"), 40)
    told = state()
    assert told["reason"]
    assert told["next_attempt"]
    assert not told["is_online"]
    assert "l2tp_1" in lab.device.run("lines")

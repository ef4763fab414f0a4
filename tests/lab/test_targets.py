"""Each target carries its client's TCP, UDP and DNS, as the servers see it; or refuses them."""

from __future__ import annotations

import pytest

from egressd.planner.registry import LINE_PORTS
from egressd_lab.lab import Lab
from egressd_lab.spec import LAN_ADDRESS, RESOLVERS, WHOAMI, LabSpec
from tests.support.device import SERVER, add_nodes, eventually, segments, send

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("nodes")]

WEB = f"http://{SERVER}/"
PORT_OF_LINES = 17_000
"""A port of lines that the lab's internet echoes on."""


def exits(lab: Lab) -> dict[str, str]:
    """Return target -> the address that servers should see."""
    nodes = {name: node.address for name, node in lab.nodes.items()}
    wans = {f"Interface:{wan.interface}": wan.address for wan in lab.wans}
    return {**nodes, **wans, "DIRECT": lab.wan(1).address}


def seen(lab: Lab, client: int) -> str:
    """Return the source address of a client's HTTP request, or its error."""
    reply = lab.client(client).http(WEB)
    return reply.seen or reply.error


ALL = ("socks5", "socks5-udp", "http", "ss", "DIRECT", "Interface:wan1", "Interface:wan2")
WITH_UDP = ("socks5-udp", "ss", "DIRECT", "Interface:wan1", "Interface:wan2")
ENGINE = ("socks5", "socks5-udp", "http", "ss")


@pytest.mark.parametrize("target", ALL)
def test_tcp_leaves_by_the_target(lab: Lab, target: str) -> None:
    send(lab, 1, target)
    assert seen(lab, 1) == exits(lab)[target]


@pytest.mark.parametrize("target", WITH_UDP)
def test_udp_leaves_by_the_target(lab: Lab, target: str) -> None:
    send(lab, 1, target)
    reply = lab.client(1).udp_echo("hello", SERVER)
    assert (reply.error, reply.seen) == ("", exits(lab)[target])


@pytest.mark.parametrize("target", WITH_UDP)
def test_clients_may_use_the_local_ports_of_lines(lab: Lab, target: str) -> None:
    assert PORT_OF_LINES in LINE_PORTS
    send(lab, 1, target)
    reply = lab.client(1).udp_echo("hello", SERVER, PORT_OF_LINES)
    assert (reply.error, reply.seen) == ("", exits(lab)[target])


@pytest.mark.parametrize("target", ["socks5", "http"])
def test_udp_to_a_node_without_udp_is_refused_at_once(lab: Lab, target: str) -> None:
    send(lab, 1, target)
    reply = lab.client(1).udp_echo("hello", SERVER)
    assert reply.error == "ECONNREFUSED"
    assert reply.seconds < 1


@pytest.mark.parametrize("target", ALL)
@pytest.mark.parametrize("server", [str(LAN_ADDRESS), RESOLVERS["google"], RESOLVERS["quad9"]])
@pytest.mark.parametrize("tcp", [False, True], ids=["udp", "tcp"])
def test_dns_leaves_by_the_target_for_any_resolver(
    lab: Lab, target: str, server: str, tcp: bool
) -> None:
    send(lab, 1, target)
    reply = lab.client(1).dns(f"a-name.{WHOAMI}", server, tcp=tcp)
    assert (reply.error, reply.addresses) == ("", (exits(lab)[target],))


@pytest.mark.parametrize("target", ENGINE)
def test_other_protocols_to_a_node_are_rejected(lab: Lab, target: str) -> None:
    send(lab, 1, target)
    assert lab.client(1).ping(SERVER).error in ("EACCES", "EHOSTUNREACH", "ENETUNREACH")


@pytest.mark.parametrize("target", ["DIRECT", "Interface:wan2"])
def test_ping_leaves_by_kernel_routed_targets(lab: Lab, target: str) -> None:
    send(lab, 1, target)
    assert lab.client(1).ping(SERVER).ok


def test_reject_refuses_at_once(lab: Lab) -> None:
    send(lab, 1, "REJECT")
    for reply in (
        lab.client(1).http(WEB),
        lab.client(1).udp_echo("hello", SERVER),
        lab.client(1).ping(SERVER),
        lab.client(1).dns("www.test", RESOLVERS["google"]),
    ):
        assert reply.error not in ("", "timeout")
        assert reply.seconds < 1


def test_a_client_without_a_rule_is_refused(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    assert lab.client(1).http(WEB).ok
    assert lab.client(2).http(WEB).error == "ECONNREFUSED"


def test_the_most_specific_cidr_rule_applies(lab: Lab) -> None:
    lab.api.post("/rules", {"ip": "10.77.0.0/24", "target_node": "Interface:wan2"})
    send(lab, 2, "socks5")
    assert seen(lab, 1) == lab.wan(2).address
    assert seen(lab, 2) == lab.nodes["socks5"].address
    lab.api.post("/rules", {"ip": "10.77.0.12/31", "target_node": "REJECT"})
    assert seen(lab, 1) == lab.wan(2).address
    assert seen(lab, 2) == lab.nodes["socks5"].address
    assert not lab.client(3).http(WEB).ok


def test_a_disabled_rule_has_no_effect(lab: Lab) -> None:
    send(lab, 1, "DIRECT")
    rule = lab.api.get("/rules")["data"][0]
    lab.api.patch(f"/rules/{rule['id']}/status", {"is_enabled": False})
    assert not lab.client(1).http(WEB).ok
    lab.api.patch(f"/rules/{rule['id']}/status", {"is_enabled": True})
    assert lab.client(1).http(WEB).ok


def test_a_missing_interface_blocks_at_once(lab: Lab) -> None:
    send(lab, 1, "Interface:wan9")
    refused = lab.client(1).http(WEB)
    assert refused.error not in ("", "timeout")
    assert refused.seconds < 1


def test_a_node_with_a_refusing_server_is_stored_and_blocks(lab: Lab) -> None:
    draft = lab.nodes["socks5"].draft() | {
        "name": "dead",
        "config_json": '{"server": "203.0.113.10", "port": 1}',
    }
    lab.api.post("/nodes", draft)
    send(lab, 1, "dead")
    assert not lab.client(1).http(WEB).ok
    answer = lab.api.ask("GET", "/svc/api/v1/nodes/delay?name=dead&url=" + WEB)
    assert answer.status == 200
    assert answer.body["delay"] == -1
    assert "refused" in answer.body["error"]


@pytest.mark.parametrize("target", ["DIRECT", "Interface:wan1"])
def test_the_mss_follows_the_mtu_of_the_wan(lab: Lab, target: str) -> None:
    send(lab, 1, target)
    assert segments(lab, 1) == (1460, 1460)
    lab.router.run("ip", "link", "set", "wan1", "mtu", "1492")  # PPPoE's (RFC 2516, 7)
    try:
        eventually(lambda: segments(lab, 1) == (1460, 1452))
        text = b"x" * 10_000 + b"\n"
        with lab.client(1).host.socket(SERVER, 7) as connected, connected.makefile("rb") as said:
            connected.settimeout(5)
            connected.sendall(text)
            said.readline()  # the greeting
            assert said.readline() == text, "the client hears by ICMP what fits"
    finally:
        lab.router.run("ip", "link", "set", "wan1", "mtu", "1500")
        lab.client(1).host.run("ip", "route", "flush", "cache")
    eventually(lambda: segments(lab, 1) == (1460, 1460))


def test_delays_of_all_nodes_are_measured(lab: Lab) -> None:
    delays = lab.api.get(f"/nodes/delay/all?url={WEB}&timeout=5000")["data"]
    assert set(delays) == set(lab.nodes)
    assert all(delay >= 0 for delay in delays.values())


def test_a_deleted_node_blocks_its_clients_until_it_is_added_again(lab: Lab) -> None:
    send(lab, 1, "socks5")
    node = next(n for n in lab.api.get("/nodes")["data"] if n["name"] == "socks5")
    answer = lab.api.delete(f"/nodes/{node['id']}")
    assert "1 rule" in answer["msg"]
    assert not lab.client(1).http(WEB).ok
    lab.api.post("/nodes", lab.nodes["socks5"].draft())
    assert seen(lab, 1) == lab.nodes["socks5"].address


def test_a_download_of_one_gibibyte_through_a_node_arrives_whole(lab: Lab) -> None:
    size = 1 << 30
    send(lab, 1, "ss")
    download = lab.client(1).download(f"{WEB}bytes/{size}", verify=True, timeout=60)
    eventually(lambda: download.progress().finished, 90)
    done = download.stop()
    assert (done.error, done.received) == ("", size)


def test_traffic_to_lan_networks_and_the_router_has_no_rules(namespaces: None) -> None:
    with Lab(LabSpec(second_lan=True, nodes=())) as lab:
        lab.start_egressd()
        send(lab, 1, "REJECT")
        assert lab.client(1).ping(lab.guest(1).address).ok
        assert lab.client(1).ping(str(LAN_ADDRESS)).ok
        assert lab.client(1).ping(lab.client(2).address).ok


def test_one_arm_use_serves_all_kinds_of_targets(namespaces: None) -> None:
    with Lab(LabSpec(one_arm=True, wans=1)) as lab:
        lab.start_egressd()
        add_nodes(lab)
        send(lab, 1, "DIRECT")
        send(lab, 2, "ss")
        send(lab, 3, "Interface:lan0")
        assert seen(lab, 1) == lab.wan(1).address
        assert seen(lab, 2) == lab.nodes["ss"].address
        assert seen(lab, 3) == lab.wan(1).address
        assert lab.client(2).udp_echo("hello", SERVER).seen == lab.nodes["ss"].address
        for number in (1, 2, 3):
            assert lab.client(number).dns("www.test", RESOLVERS["google"]).ok
        send(lab, 1, "REJECT")
        assert not lab.client(1).http(WEB).ok

"""A node's settings beside its protocol: resolver, interface, relay; and refused ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from egressd_lab import netns
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from egressd_lab.spec import RESOLVERS, WEB_SERVERS, LabSpec
from tests.support.device import SERVER, clear, eventually, send
from tests.support.nodes.served import NAME, PASSWORD
from tests.support.programs import argv_of

pytestmark = pytest.mark.lab

WEB = f"http://{SERVER}/"
QUIC = "198.18.0.1"
"""The address of the hysteria2 server."""
SILENT = "203.0.113.99"
"""An address of the internet that no host has."""


@pytest.fixture(scope="module")
def device(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("socks5", "socks5-udp", "ss"))) as lab:
        certificate, key = lab.authority.certificate(NAME)
        tls = {"enabled": True, "certificate_path": str(certificate), "key_path": str(key)}
        users = [{"name": "u", "password": PASSWORD}]
        inbound = {"type": "hysteria2", "listen_port": 443, "users": users, "tls": tls}
        assert lab.add_engine_node("quic", [inbound]) == [QUIC]
        lab.start_egressd()
        yield lab


@pytest.fixture
def lab(device: Lab) -> Iterator[Lab]:
    for node in device.nodes.values():
        device.api.post("/nodes", node.draft())
    yield device
    clear(device)
    for node in device.nodes.values():
        device.start_node(node)


def ids(lab: Lab, *names: str) -> list[int]:
    rows = {node["name"]: node["id"] for node in lab.api.get("/nodes")["data"]}
    return [rows[name] for name in names]


def batch(lab: Lab, name: str, **settings: str) -> dict[str, Any]:
    """Call ``PATCH /nodes/batch`` for one node."""
    body = {"ids": ids(lab, name), **settings}
    return dict(lab.api.ask("PATCH", "/svc/api/v1/nodes/batch", body).body)


def hysteria(lab: Lab, **settings: Any) -> dict[str, str]:
    fields = {"server": QUIC, "port": 443, "password": PASSWORD, "sni": NAME}
    config = json.dumps({**fields, **settings})
    return {"name": "quic", "protocol": "hysteria2", "config_json": config, "group": ""}


PROFILES = {
    "auto": ("overseas", ""),
    "outbound": ("overseas", ""),
    "return": ("return", ""),
    "domestic": ("domestic", "wan1"),
    "custom": ("quad9", ""),
}
"""Profile -> its resolver, and the WAN of its queries if they do not go through the node."""


@pytest.mark.parametrize("node", ["socks5", "ss"])
@pytest.mark.parametrize("profile", PROFILES)
def test_the_dns_profile_selects_the_resolver_of_a_nodes_clients(
    lab: Lab, node: str, profile: str
) -> None:
    resolver, wan = PROFILES[profile]
    send(lab, 1, node)
    answer = batch(lab, node, node_dns_profile=profile, node_dns_servers=RESOLVERS["quad9"])
    assert answer["updated"] == 1
    name = f"{node}-{profile}.test"
    mark = lab.internet.mark()
    assert lab.client(1).dns(name, RESOLVERS["google"]).addresses == (SERVER,)
    source = lab.wan(1).address if wan else lab.nodes[node].address
    asked = lab.internet.seen(since=mark, text=name)
    assert {(seen.server, seen.source) for seen in asked} == {(RESOLVERS[resolver], source)}
    assert {seen.service for seen in asked} == {"dns" if wan or node == "ss" else "dns-tcp"}


@pytest.mark.parametrize("node", ["socks5", "ss"])
def test_the_next_resolver_replaces_a_silent_one(lab: Lab, node: str) -> None:
    send(lab, 1, node)
    servers = f"{SILENT},{RESOLVERS['quad9']}"
    assert "msg" in batch(lab, node, node_dns_profile="custom", node_dns_servers=servers)
    name = f"{node}-in-turn.test"
    mark = lab.internet.mark()
    assert lab.client(1).dns(name, RESOLVERS["google"], timeout=5).addresses == (SERVER,)
    asked = lab.internet.seen(since=mark, text=name)
    own = lab.nodes[node].address
    assert {(seen.server, seen.source) for seen in asked} == {(RESOLVERS["quad9"], own)}


def test_a_node_is_dialled_by_its_interface(lab: Lab) -> None:
    send(lab, 1, "socks5")
    with lab.internet.capture() as capture:
        for wan, other in ((2, 1), (1, 2)):
            assert "msg" in batch(lab, "socks5", interface_name=f"wan{wan}")
            capture.prove()
            token = new_token()
            assert lab.client(1).http(f"{WEB}{token}").seen == lab.nodes["socks5"].address
            places = {flow.interface for flow in capture.flows(token)}
            assert f"isp{wan}" in places
            assert f"isp{other}" not in places
    lab.wan(1).unplug()
    try:
        assert not lab.client(1).http(WEB, timeout=2).ok
    finally:
        lab.wan(1).restore()
    eventually(lambda: lab.client(1).http(WEB, timeout=2).ok)
    assert "msg" in batch(lab, "socks5", interface_name="", dialer_proxy="")


def test_a_chain_of_relays_carries_traffic(lab: Lab) -> None:
    batch(lab, "ss", dialer_proxy="socks5-udp")
    batch(lab, "socks5-udp", dialer_proxy="socks5")
    send(lab, 1, "ss")
    client = lab.client(1)
    reply = client.http(WEB)
    assert reply.seen == lab.nodes["ss"].address, reply
    # One of them carries no UDP, so the chain does not.
    assert client.udp_echo("hello", SERVER).error == "ECONNREFUSED"
    lab.nodes["socks5"].program.kill()
    mark = lab.internet.mark()
    assert not client.http(f"{WEB}through-a-dead-relay", timeout=2).ok
    assert lab.internet.seen(since=mark, text="through-a-dead-relay") == []
    answer = lab.api.ask("GET", f"/svc/api/v1/nodes/delay?name=ss&url={WEB}&timeout=2000")
    assert answer.body["delay"] == -1


def test_a_relay_with_udp_carries_udp(lab: Lab) -> None:
    batch(lab, "ss", dialer_proxy="socks5-udp")
    send(lab, 1, "ss")
    assert lab.client(1).udp_echo("hello", SERVER).seen == lab.nodes["ss"].address


def test_relay_loops_and_missing_relays_are_refused(lab: Lab) -> None:
    batch(lab, "ss", dialer_proxy="socks5-udp")
    for relay, reason in (("ss", "circle"), ("socks5-udp", "circle"), ("nobody", "no node")):
        assert reason in batch(lab, "socks5-udp", dialer_proxy=relay)["error"]
    both = batch(lab, "ss", dialer_proxy="socks5", interface_name="wan1")
    assert "dialer_proxy must be empty when interface_name is given" in both["error"]


def test_a_protocol_over_udp_needs_a_relay_with_udp(lab: Lab) -> None:
    path = "/svc/api/v1/nodes"
    refused = lab.api.ask("POST", path, hysteria(lab, **{"dialer-proxy": "socks5"}))
    assert refused.status == 400
    assert "carries UDP" in refused.body["error"]
    lab.api.post("/nodes", hysteria(lab, **{"dialer-proxy": "socks5-udp"}))
    assert "carries UDP" in batch(lab, "quic", dialer_proxy="socks5")["error"]
    send(lab, 1, "quic")
    assert lab.client(1).http(WEB).seen == QUIC
    assert lab.client(1).udp_echo("hello", SERVER, 443).seen == QUIC

    relay = lab.nodes["socks5-udp"]
    config = json.dumps({**relay.clash, "udp": False})
    (key,) = ids(lab, relay.name)
    answer = lab.api.put(f"/nodes/{key}", {**relay.draft(), "config_json": config})
    assert "quic does not work, as quic is spoken over UDP" in answer["msg"]
    assert not lab.client(1).http(WEB, timeout=2).ok
    delay = lab.api.ask("GET", f"{path}/delay?name=quic&url={WEB}").body
    assert "carries no UDP" in delay["error"]


def test_fields_without_effect_are_reported_and_dangerous_ones_refused(lab: Lab) -> None:
    config = {**lab.nodes["ss"].clash, "tfo": True, "country": "JP"}
    draft = {**lab.nodes["ss"].draft(), "name": "odd", "config_json": json.dumps(config)}
    answer = lab.api.post("/nodes", draft)
    assert "have no effect: country, tfo" in answer["msg"]
    kept = next(node for node in lab.api.get("/nodes")["data"] if node["name"] == "odd")
    assert kept["config_json"] == draft["config_json"]
    for key in ("routing-mark", "ca", "bind-interface", "log-file"):
        bad = {**draft, "name": "bad", "config_json": json.dumps({**config, key: "x"})}
        refused = lab.api.ask("POST", "/svc/api/v1/nodes", bad)
        assert (refused.status, key in refused.body["error"]) == (400, True)


@pytest.mark.parametrize("node", ["ss", "quic"])
def test_udp_from_any_peer_reaches_a_clients_socket(lab: Lab, node: str) -> None:
    if node == "quic":
        lab.api.post("/nodes", hysteria(lab))
    send(lab, 1, node)
    namespace = netns.namespace(lab.name, "client1")
    first, second, stranger = WEB_SERVERS
    argv = argv_of("cone", lab.client(1).address, "7", first, second)
    command = netns.exec_argv(namespace, argv)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as cone:
        assert cone.stdout is not None
        mapped = cone.stdout.readline().split()
        # The socket has one address and port towards all servers (RFC 4787, REQ-1) ...
        assert cone.stdout.readline().split() == mapped
        # ... and receives from every sender to it (REQ-8).
        code = (
            "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
            f"s.bind(({stranger!r}, 0)); s.sendto(b'stranger', ({mapped[0]!r}, {mapped[1]}))"
        )
        lab.internet.run(sys.executable, "-c", code)
        assert cone.stdout.readline().split() == [stranger, "stranger"]

"""Each protocol and transport on a real server: the traffic it carries, and its block when the
server refuses it, is absent or is silent.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from egressd_lab import netns
from egressd_lab.engine import node_document
from egressd_lab.lab import Lab
from egressd_lab.process import Program
from egressd_lab.spec import RESOLVERS, WHOAMI, LabSpec
from egressd_lab.wireguard import WireGuardServer
from tests.lab.whitelisted import served as hello_servers
from tests.lab.whitelisted import visit
from tests.support.device import SERVER, clear, send
from tests.support.nodes.served import NAME, Served, every, shadow_tls
from tests.support.nodes.upgrading import BEHIND, Front, command
from tests.support.programs.hellos import Visit

pytestmark = pytest.mark.lab

WEB = f"http://{SERVER}/"
PORT = 8443
LAYERED = "198.18.9.1"
"""The address of the servers within ShadowTLS."""
BLACK_HOLE = "198.19.255.1"
"""An address that packets to it are lost for."""
STRANGER = (
    Ed25519PrivateKey.generate()
    .private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    .decode()
)
"""A private key that no SSH server lets in."""
QUESTION = r"""
import socket, sys
question = b"\x124\x01\0\0\x01" + bytes(6) + b"\x06whoami\x04test\0\0\x01\0\x01"
asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asker.settimeout(2)
asker.sendto(question, (sys.argv[1], 53))
try:
    print(asker.recv(512).hex())
except OSError:
    print("no answer")
"""
"""A program that asks a resolver for the address of whoami.test."""
DELAY_MS = 1000
SILENCE_S = 1.0
"""Seconds that a client waits for an answer that must not come."""


@dataclass(frozen=True)
class Site:
    """The lab, the nodes' servers in it, and their addresses."""

    lab: Lab
    served: dict[str, Served]
    addresses: dict[str, str]
    tunnel: WireGuardServer

    def draft(self, name: str, **changes: Any) -> dict[str, str]:
        """Return the body that makes node ``n`` one of the server `name`, with other fields, and
        without those that are None.
        """
        case = self.served[name]
        fields = {"port": PORT, **case.fields, "server": self.addresses[name], **changes}
        given = {key: value for key, value in fields.items() if value is not None}
        return {
            "name": "n",
            "protocol": case.protocol,
            "config_json": json.dumps(given),
            "group": "",
        }

    def put(self, name: str, **changes: Any) -> None:
        """Make the node ``n`` this one, and send client 1 to it."""
        draft = self.draft(name, **changes)
        known = [node for node in self.lab.api.get("/nodes")["data"] if node["name"] == "n"]
        if known:
            self.lab.api.put(f"/nodes/{known[0]['id']}", draft)
        else:
            self.lab.api.post("/nodes", draft)
            send(self.lab, 1, "n")

    def delay(self, timeout_ms: int = DELAY_MS) -> dict[str, Any]:
        path = f"/svc/api/v1/nodes/delay?name=n&url={WEB}generate_204&timeout={timeout_ms}"
        answer = self.lab.api.ask("GET", path)
        assert answer.status == 200
        return dict(answer.body)

    def fault(self, token: str) -> str:
        """Return a delay test's error of the node. Meanwhile nothing of client 1 with `token`
        arrives anywhere, and the client gets an error or no answer.
        """
        mark = self.lab.internet.mark()
        client = self.lab.client(1)
        with ThreadPoolExecutor() as threads:
            http = threads.submit(client.http, f"{WEB}{token}", timeout=SILENCE_S)
            echo = threads.submit(client.udp_echo, token, SERVER, timeout=SILENCE_S)
            asked = f"{token}.test", RESOLVERS["google"]
            dns = threads.submit(client.dns, *asked, timeout=SILENCE_S)
            failed = self.delay()
        assert not http.result().ok
        assert not echo.result().ok
        assert not dns.result().addresses
        assert self.lab.internet.seen(since=mark, text=token) == []
        assert failed["delay"] == -1
        return str(failed["error"])


PLUGINS = ("ss-obfs-http", "ss-obfs-tls", "ss-websocket")
SSH = ("ssh", "ssh-key")
NAMES = (*every(Path("certificate"), Path("key")), *PLUGINS, *SSH, "wireguard", *shadow_tls(PORT))


@pytest.fixture(scope="module")
def site(namespaces: None) -> Iterator[Site]:
    with Lab(LabSpec(clients=1, nodes=(*PLUGINS, *SSH))) as lab:
        certificate, key = lab.authority.certificate(NAME)
        served = every(certificate, key)
        inbounds = [
            {**case.inbound, "listen_port": PORT + (BEHIND if case.upgrade else 0)}
            for case in served.values()
        ]
        addresses = dict(zip(served, lab.add_engine_node("engine", inbounds), strict=True))
        fronts = [
            Front(
                addresses[name],
                PORT,
                case.upgrade,
                *((str(certificate), str(key)) if case.is_secure else ()),
            )
            for name, case in served.items()
            if case.upgrade
        ]
        front = Program(
            netns.namespace(lab.name, "node-engine"),
            command(fronts, lab.folder / "fronts.json"),
            lab.folder / "fronts.log",
        )
        front.start()
        for node in lab.nodes.values():
            wrong = {"private-key": STRANGER} if node.name == "ssh-key" else {"password": "wrong"}
            reason = "wrong user name, password or private key" if node.name in SSH else ""
            served[node.name] = Served(
                node.protocol, node.clash, {}, wrong, udp=False, reason=reason
            )
            addresses[node.name] = node.address
        layered = shadow_tls(PORT)
        lab.topology.add_node("layered", [LAYERED])
        behind = [inbound for _, inbounds in layered.values() for inbound in inbounds]
        lab.start_engine("node-layered", node_document(behind, [LAYERED] * len(behind)))
        served |= {name: case for name, (case, _) in layered.items()}
        addresses |= dict.fromkeys(layered, LAYERED)
        tunnel = lab.add_wireguard()
        wrong = {"pre-shared-key": tunnel.clash["private-key"]}
        served["wireguard"] = Served("wireguard", tunnel.clash, {}, wrong)
        addresses["wireguard"] = tunnel.address
        lab.internet.run("ip", "route", "add", "blackhole", BLACK_HOLE)
        lab.start_egressd()
        with hello_servers(lab):
            yield Site(lab, served, addresses, tunnel)
        front.kill()


@pytest.fixture(autouse=True)
def _cleared(site: Site) -> Iterator[None]:
    yield
    clear(site.lab)


@pytest.mark.parametrize("name", NAMES)
def test_a_node_carries_tcp_and_udp_and_blocks_on_failure(site: Site, name: str) -> None:
    case, address = site.served[name], site.addresses[name]
    client = site.lab.client(1)
    site.put(name)
    assert "error" not in site.delay(5000)
    reply = client.http(WEB)
    assert (reply.error, reply.seen) == ("", address)
    answer = client.dns(f"a.{WHOAMI}", RESOLVERS["google"])
    assert (answer.error, answer.addresses) == ("", (address,))
    for port in (7, 443):
        echo = client.udp_echo("hello", SERVER, port)
        if case.udp:
            assert (echo.error, echo.seen) == ("", address)
        else:
            assert echo.error == "ECONNREFUSED"
            assert echo.seconds < 1
    upload = client.http(f"{WEB}up", method="POST", upload=300_000)
    assert upload.json["intact"]

    site.put(name, **case.wrong)
    assert case.reason in site.fault("wrong-secret")

    site.put(name, port=1)
    assert "refused" in site.fault("closed-port") or not case.is_told_refused

    site.put(name, server=BLACK_HOLE)
    fault = site.fault("black-hole")
    assert "timed out" in fault or "does not answer" in fault

    site.put(name)
    assert client.http(WEB).seen == address


@pytest.mark.parametrize("name", PLUGINS)
def test_a_plugins_server_serves_no_client_with_another_plugin_or_none(
    site: Site, name: str
) -> None:
    plain = {"plugin": None, "plugin-opts": None}
    clients = [site.served[other].fields for other in PLUGINS if other != name]
    if "obfs-server" not in site.lab.nodes[name].program.argv:  # it serves plain Shadowsocks, too
        clients.append(plain)
    for client in clients:
        site.put(name, **{field: client[field] for field in plain})
        site.fault("other-plugin")
    site.put(name)
    assert site.lab.client(1).http(WEB).seen == site.addresses[name]


def test_an_ssh_server_with_another_key_gets_neither_login_nor_traffic(site: Site) -> None:
    other = Ed25519PrivateKey.generate().public_key()
    key = other.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    site.put("ssh", **{"host-key": [key]})
    assert site.fault("other-host-key") == "the server's key is none of host-key"
    site.put("ssh")
    assert site.lab.client(1).http(WEB).seen == site.addresses["ssh"]


def test_a_tunnel_in_use_is_measured_where_it_is(site: Site) -> None:
    """A second end of its key elsewhere would take the answers: the client would hear nothing for
    15 s.
    """
    site.put("wireguard")
    client = site.lab.client(1)
    assert client.http(WEB).seen == site.addresses["wireguard"]
    end = site.tunnel.client_end
    for _ in range(3):
        assert "error" not in site.delay(5000)
        assert client.udp_echo("hello", SERVER, timeout=1.0).error == ""
        assert client.http(WEB, timeout=1.0).seen == site.addresses["wireguard"]
        assert site.tunnel.client_end == end


def test_the_other_end_of_a_tunnel_gets_no_connection_to_anything(site: Site) -> None:
    site.put("wireguard")
    client, router = site.lab.client(1), site.lab.router
    assert client.http(WEB).seen == site.addresses["wireguard"]
    argv = [sys.executable, "-m", "http.server", "8099", "--bind", "127.0.0.1"]
    local = Program(router.namespace, argv, site.lab.folder / "local.log")
    local.start()
    try:
        command = ("curl", "-sS", "-m", "2", "--retry", "9", "--retry-connrefused")
        assert router.run(*command, "http://127.0.0.1:8099/").stdout
        for address, port in (
            (site.tunnel.client, 8099),
            (client.address, 80),
            (SERVER, 80),
        ):
            way = ("--interface", site.tunnel.interface, f"http://{address}:{port}/")
            found = site.tunnel.host.run("curl", "-sS", "-m", "2", *way, check=False)
            assert (found.stdout, found.returncode in (7, 28, 56)) == ("", True), (address, port)
        asked = (sys.executable, "-c", QUESTION, site.tunnel.client)
        assert site.tunnel.host.run(*asked).stdout == "no answer\n"
    finally:
        local.kill()
    assert client.http(WEB).seen == site.addresses["wireguard"]


def test_a_tunnel_leaves_by_its_own_interface_or_not_at_all(site: Site) -> None:
    """The packets of the tunnel are encrypted: they are known by the server that they go to."""
    lab, client, address = site.lab, site.lab.client(1), site.addresses["wireguard"]
    first, second = lab.wan(1), lab.wan(2)
    with lab.internet.capture(first.far) as other, lab.internet.capture(second.far) as own:
        site.put("wireguard")  # by the default route: both captures can see such packets
        assert client.http(WEB).seen == address
        assert other.flows(destination=address)
        other.clear()
        own.clear()
        site.put("wireguard", **{"interface-name": second.interface})
        assert client.http(WEB).seen == address
        assert site.delay(5000)["delay"] > 0
        assert site.tunnel.client_end.startswith(f"{second.address}:")
        assert own.flows(destination=address)
        second.unplug()
        try:
            site.fault("wan-gone")
        finally:
            second.restore()
        assert other.flows(destination=address) == []
        site.put("wireguard")


def test_a_tunnel_through_a_relay_is_seen_from_the_relay_alone(site: Site) -> None:
    relay = site.draft("ss aes-256-gcm") | {"name": "relay"}
    made = site.lab.api.post("/nodes", relay)
    address, way = site.addresses["wireguard"], site.addresses["ss aes-256-gcm"]
    with site.lab.internet.capture(site.lab.wan(1).far) as capture:
        site.put("wireguard", **{"dialer-proxy": "relay"})
        assert site.delay(5000)["delay"] > 0
        client = site.lab.client(1)
        assert client.http(WEB).seen == address
        assert client.udp_echo("hello", SERVER).seen == address
        assert site.tunnel.client_end.startswith(f"{way}:")
        assert capture.flows(destination=way)
        assert capture.flows(destination=address) == []
    site.put("wireguard")
    site.lab.api.delete("/nodes/batch", {"ids": [made["id"]]})


QUIC_CARRIERS = (
    "socks5",
    "ss 2022 aes-128",
    "vmess ws",
    "vless vision",
    "trojan tcp",
    "tuic",
    "hysteria",
    "wireguard",
)


@pytest.mark.parametrize("name", QUIC_CARRIERS)
def test_a_quic_client_reaches_its_server_through_a_node(site: Site, name: str) -> None:
    site.put(name)
    visits = [Visit(kind="quic", name="www.test", port=443, pieces=pieces) for pieces in (1, 2)]
    assert visit(site.lab, 1, visits) == [site.addresses[name]] * 2

"""Datagrams through nodes: of any size, and of sessions that fall silent for a while."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from egressd_lab.lab import Lab
from egressd_lab.netns import exec_argv
from egressd_lab.spec import LAN_ADDRESS, LabSpec
from tests.lab.tunnel import THERE, tunnel
from tests.support.device import SERVER, add_nodes, send
from tests.support.nodes.served import NAME, every
from tests.support.programs import argv_of

pytestmark = pytest.mark.lab

PORT = 8443
SERVED = ("ss aes-256-gcm", "ss 2022 aes-128", "vmess tcp", "hysteria2", "tuic", "anytls")
SIZES = (1000, 1440, 1472, 1473, 2000, 4000)
LONG = (9000, 14_000)
"""Sizes that all protocols but Hysteria 2 support."""
TOO_LONG = (15_500, 65_000)
SERVICE_PORT = 10_800
SILENCE_S = 11.0
"""Seconds of silence. The engine's own timeout for STUN is 10 s."""


@pytest.fixture(scope="module")
def site(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("socks5-udp",))) as lab:
        certificate, key = lab.authority.certificate(NAME)
        served = [every(certificate, key)[name] for name in SERVED]
        # Each server must send fragments, both ways. Its operator is responsible for that.
        inbounds = [{**s.inbound, "listen_port": PORT, "udp_fragment": True} for s in served]
        addresses = lab.add_engine_node("engine", inbounds)
        lab.start_egressd()
        add_nodes(lab)
        for name, each, address in zip(SERVED, served, addresses, strict=True):
            config = {"server": address, "port": PORT, **each.fields}
            draft = {"name": name, "protocol": each.protocol, "config_json": json.dumps(config)}
            lab.api.post("/nodes", {**draft, "group": ""})
        yield lab


@pytest.fixture(params=[1500, 1400])
def mtu(request: pytest.FixtureRequest, site: Lab) -> Iterator[int]:
    """Set the MTU of the WANs, and yield it."""

    def put(value: int) -> None:
        for wan in site.wans:
            site.router.run("ip", "link", "set", wan.interface, "mtu", str(value))
            site.internet.run("ip", "link", "set", wan.far, "mtu", str(value))

    put(request.param)
    yield request.param
    put(1500)


def exchanged(lab: Lab, client: int, *sizes: int) -> dict[int, list[str]]:
    """Return the results of datagrams of each size, sent from one socket."""
    own = lab.client(client)
    numbers = [str(number) for number in (7, *sizes)]
    argv = argv_of("sizes", own.address, SERVER, *numbers)
    argv = exec_argv(own.host.namespace, argv)
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    lines = (line.split() for line in done.stdout.splitlines())
    return {int(size): what for size, *what in lines}


@pytest.mark.parametrize("name", ["socks5-udp", *SERVED])
def test_datagrams_of_any_size_arrive_or_are_refused(site: Lab, name: str, mtu: int) -> None:
    send(site, 1, name)
    sizes = SIZES if name == "hysteria2" else (*SIZES, *LONG)
    refused = (*TOO_LONG, *LONG) if name == "hysteria2" else TOO_LONG
    exchanged(site, 1, 1440)  # teaches a node's server the size that fits
    came = exchanged(site, 1, *sizes, *refused, *sizes)
    # All are seen from one address and port: the session is not begun anew.
    seen = {tuple(came[size]) for size in sizes}
    assert [what for what, *_ in seen] == ["intact"], seen
    assert all(came[size] == ["EHOSTUNREACH"] for size in refused)


def test_a_clients_tunnel_works_through_a_node(site: Lab, mtu: int) -> None:
    send(site, 1, "ss aes-256-gcm")
    with tunnel(site, 1) as client:
        full = ("-M", "do", "-s", "1392")
        client.run("ping", "-n", "-c", "3", "-i", "0.2", "-W", "2", *full, THERE)


def silent(lab: Lab, client: int, source: str) -> subprocess.Popen[str]:
    """Start sessions of STUN and others that fall silent."""
    ports = ("3478", "17000")
    argv = argv_of("silence", str(SILENCE_S), source, SERVER, *ports)
    argv = exec_argv(lab.client(client).host.namespace, argv)
    return subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)


def test_sessions_survive_silence(site: Lab) -> None:
    service: dict[str, Any] = {"name": "s", "outbound_interface": "wan1", "port": SERVICE_PORT}
    login = {"username": "", "password": "", "is_enabled": True}
    key = site.api.post("/proxy-services", service | login)["id"]
    send(site, 1, "ss aes-256-gcm")
    send(site, 2, "vmess tcp")
    sources = [(n, site.client(n).address) for n in (1, 2)] + [(3, f"{LAN_ADDRESS}:{SERVICE_PORT}")]
    programs = [silent(site, client, source) for client, source in sources]
    told = [program.communicate()[0].splitlines() for program in programs]
    site.api.delete(f"/proxy-services/{key}")
    assert told == [["3478 kept", "17000 kept"]] * 3

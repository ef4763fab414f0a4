"""The rulesets of docs/nftables.md beside egressd: clients are served, and the box's own ports are
closed to the outside.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from egressd_lab.client import Client
from egressd_lab.device import API_PORT
from egressd_lab.lab import Lab
from egressd_lab.spec import LAN_ADDRESS, LabSpec, Place
from tests.support.device import SERVER, add_nodes, send

pytestmark = pytest.mark.lab

TEXT = (Path(__file__).parents[2] / "docs" / "nftables.md").read_text("utf-8")
FILES = re.findall(r"^```\n(#!/usr/sbin/nft -f\n.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
WEB = f"http://{SERVER}/"
STATUS = f"http://{LAN_ADDRESS}:{API_PORT}/ops/health"


@pytest.fixture(params=["two-arm", "one-arm"])
def lab(namespaces: None, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Run a device whose API listens at all addresses; two clients have rules."""
    is_one_arm = request.param == "one-arm"
    with Lab(LabSpec(one_arm=is_one_arm, wans=1, nodes=("socks5",), clients=3)) as lab:
        lab.start_egressd(settings={"api": {"listen": f"0.0.0.0:{API_PORT}"}})
        add_nodes(lab)
        send(lab, 1, "DIRECT")
        send(lab, 2, "socks5")
        yield lab


def ruleset(lab: Lab) -> str:
    """Return the ruleset for the lab's layout, with the lab's names."""
    two_arm, one_arm = FILES
    if not lab.spec.one_arm:
        return str(two_arm)
    network = IPv4Network((LAN_ADDRESS, lab.spec.lan_prefix), strict=False)
    return str(one_arm).replace("192.168.1.0/24", str(network))


def test_clients_are_served_and_strangers_refused(lab: Lab) -> None:
    served = {number: lab.client(number).http(WEB).seen for number in (1, 2)}
    assert all(served.values())
    stranger = Client(lab.internet, Place(name="internet", role="internet", address=SERVER))
    # In one-arm use egressd itself refuses connections from outside the LAN's network.
    assert stranger.http(STATUS).ok == (not lab.spec.one_arm)
    lab.router.run("nft", "-f", "-", stdin=ruleset(lab))
    lab.router.run("nft", "-f", "-", stdin=ruleset(lab))
    for number, seen in served.items():
        client = lab.client(number)
        assert client.http(WEB).seen == seen
        assert client.http(STATUS).status == 200
    assert lab.client(1).udp_echo("hello").ok
    assert lab.client(3).http(WEB).status != 200
    assert not stranger.http(STATUS).ok
    problems = lab.api.ask("GET", "/ops/overview").body["problems"]
    assert not [text for text in problems if "firewall" in text]


def test_dns_is_answered(lab: Lab) -> None:
    lab.router.run("nft", "-f", "-", stdin=ruleset(lab))
    for number in (1, 2):
        client = lab.client(number)
        assert client.dns("www.example.com", str(LAN_ADDRESS)).addresses == (SERVER,)

"""Nodes whose servers have IPv6 addresses are reached by their own WAN, or not at all."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import pytest

from egressd_lab.lab import Lab
from egressd_lab.spec import SERVERS6, WEB_SERVERS, LabSpec
from tests.support.device import SERVER, clear, eventually, send

pytestmark = pytest.mark.lab

PORT = 8388
WEB = f"http://{SERVER}/"
SEEN = WEB_SERVERS[2]
"""The address that the node's server connects from."""
ONLY6 = "only6.example"


@pytest.fixture(scope="module")
def site(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("ss",), zone={ONLY6: SERVERS6})) as lab:
        inbound = {"type": "shadowsocks", "method": "aes-256-gcm", "password": "p"}
        document = {
            "log": {"level": "warn"},
            "inbounds": [{**inbound, "listen": SERVERS6[0], "listen_port": PORT}],
            "outbounds": [{"type": "direct", "inet4_bind_address": SEEN}],
        }
        lab.start_engine("internet", document)
        lab.start_egressd()
        yield lab


@pytest.fixture(autouse=True)
def _as_before(site: Lab) -> Iterator[None]:
    yield
    for wan in site.wans:
        wan.restore()
    clear(site)
    # The server would retransmit, and get an answer during the next test.
    site.internet.run("ss", "-K", "-tn", "sport", "=", f":{PORT}")


def add(lab: Lab, server: str = SERVERS6[0], **settings: str) -> None:
    """Add the node ``six``, and send client 1 to it."""
    fields = {"server": server, "port": PORT, "cipher": "aes-256-gcm", "password": "p"}
    config = json.dumps({**fields, **settings})
    draft = {"name": "six", "protocol": "ss", "config_json": config, "group": ""}
    lab.api.post("/nodes", draft)
    send(lab, 1, "six")


def is_served(lab: Lab) -> bool:
    client = lab.client(1)
    return (
        client.http(WEB, timeout=1).seen == SEEN
        and client.udp_echo("hello", SERVER, timeout=1).seen == SEEN
    )


def ways(lab: Lab, numbers: Sequence[int] = (1, 2)) -> set[str]:
    """Return the WANs, of those with these numbers, that packets to or from the server pass during
    a request of client 1.
    """
    wans = map(lab.wan, numbers)
    with ExitStack() as stack:
        captures = {
            wan.interface: stack.enter_context(lab.internet.capture(wan.far)) for wan in wans
        }
        is_served(lab)
        return {
            name
            for name, capture in captures.items()
            for flow in capture.flows()
            if SERVERS6[0] in (flow.source, flow.destination)
        }


@pytest.mark.parametrize("number", [1, 2])
def test_a_node_leaves_by_its_configured_wan_or_not_at_all(site: Lab, number: int) -> None:
    wan = site.wan(number)
    add(site, **{"interface-name": wan.interface})
    assert is_served(site)
    assert ways(site) == {wan.interface}

    site.router.run("ip", "-6", "route", "del", "default", "dev", wan.interface)
    eventually(lambda: not is_served(site))
    assert ways(site, [3 - number]) == set()
    eventually(lambda: ways(site) == set())  # the server repeats what was not acknowledged
    site.router.run(
        "ip", "-6", "route", "add", "default", "via", wan.plan.gateway6, "dev", wan.interface
    )
    eventually(lambda: is_served(site))

    wan.lower()
    eventually(lambda: not is_served(site))
    assert ways(site, [3 - number]) == set()
    wan.restore()
    eventually(lambda: is_served(site))
    assert ways(site) == {wan.interface}


def test_without_nftables_a_node_leaves_by_its_own_wan_or_not_at_all(site: Lab) -> None:
    add(site, **{"interface-name": "wan2"})
    assert is_served(site)
    site.router.run("ip", "-6", "route", "del", "default", "dev", "wan2")
    eventually(lambda: not is_served(site))
    path = f"/svc/api/v1/nodes/delay?name=six&url={WEB}&timeout=500"
    with site.internet.capture(site.wan(1).far) as first:
        for _ in range(20):
            site.router.run("nft", "flush", "table", "inet", "egressd")
            assert site.api.ask("GET", path).body["error"] == "the node is unreachable"
        first.prove()
        assert not [
            flow for flow in first.flows() if SERVERS6[0] in (flow.source, flow.destination)
        ]


def test_a_node_without_an_interface_leaves_by_the_default_wan(site: Lab) -> None:
    add(site)
    assert is_served(site)
    assert ways(site) == {"wan1"}


def test_a_node_works_as_a_relay_and_behind_one(site: Lab) -> None:
    add(site, **{"interface-name": "wan2"})
    node = site.nodes["ss"]
    config = json.dumps({**node.clash, "dialer-proxy": "six"})
    site.api.post("/nodes", {**node.draft(), "config_json": config})
    send(site, 2, "ss")
    client = site.client(2)
    assert client.http(WEB).seen == node.address
    assert client.udp_echo("hello", SERVER).seen == node.address
    assert ways(site) == {"wan2"}


@pytest.mark.parametrize("version", ["ipv6", "ipv6-prefer", "dual", "ipv4-prefer"])
def test_a_node_is_reached_by_a_name_with_ipv6_addresses_only(site: Lab, version: str) -> None:
    add(site, ONLY6, **{"interface-name": "wan2", "ip-version": version})
    assert is_served(site)
    assert ways(site) == {"wan2"}


def test_a_name_without_an_ipv4_address_is_reported(site: Lab) -> None:
    add(site, ONLY6)
    path = f"/svc/api/v1/nodes/delay?name=six&url={WEB}&timeout=2000"
    assert "no address of the asked kind" in site.api.ask("GET", path).body["error"]

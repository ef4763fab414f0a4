"""DNS of LAN clients leaves by their own target or not at all, with any address in a query (P1).

A real dnsmasq runs on the router, as on most routers. It asks upstream resolvers by the default
WAN.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from egressd_lab.client import Client
from egressd_lab.dnswire import encode_query
from egressd_lab.lab import Lab
from egressd_lab.packets import TCP, UDP, new_token
from egressd_lab.spec import LAN_ADDRESS, LabSpec, Place
from tests.support.device import SERVER, add_nodes, eventually, send
from tests.support.programs.dnsmasq import dnsmasq

pytestmark = pytest.mark.lab

BROADCAST = "10.77.0.255"
DESTINATIONS = ("255.255.255.255", BROADCAST, "224.0.0.1", "224.0.0.251", str(LAN_ADDRESS), SERVER)


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("ss",), clients=4)) as lab:
        lab.start_egressd()
        add_nodes(lab)
        yield lab


@pytest.fixture(scope="module", autouse=True)
def resolver(lab: Lab) -> Iterator[None]:
    with dnsmasq(lab, lab.router):
        eventually(lambda: own(lab).dns("www.example.com", "127.0.0.1", timeout=0.5).ok)
        yield


def own(lab: Lab) -> Client:
    return Client(lab.router, Place(name="router", role="router", address="127.0.0.1"))


def question(name: str) -> str:
    """Return a query, whose bytes are all below 128."""
    return encode_query(0x1234, name, "A").decode("ascii")


@pytest.mark.parametrize("target", ["REJECT", "", "ss", "Interface:wan2"])
def test_no_resolver_on_the_router_forwards_a_clients_query_outside(lab: Lab, target: str) -> None:
    if target:
        send(lab, 1, target)
    client = lab.client(1 if target else 4)
    with lab.internet.capture(lab.wan(1).far) as capture:
        capture.prove(lambda token: own(lab).dns(f"{token}.test", "127.0.0.1"))
        token = new_token()
        for source in (client.address, "0.0.0.0", "10.77.0.99", "203.0.113.77", "127.0.0.1"):
            for destination in DESTINATIONS:
                for protocol in (UDP, TCP):
                    text = question(f"{token}.test")
                    client.raw(source, destination, protocol=protocol, port=53, text=text)
        # All results of those queries have arrived by now: dnsmasq and the network keep the order.
        capture.prove(lambda token: own(lab).dns(f"{token}.test", "127.0.0.1"))
        assert capture.flows(token) == []


def test_the_router_answers_a_client_by_the_clients_egress(lab: Lab) -> None:
    send(lab, 1, "Interface:wan2")
    assert lab.client(1).dns("www.example.com", str(LAN_ADDRESS)).ok
    assert lab.client(1).dns("www.example.com", str(LAN_ADDRESS), tcp=True).ok

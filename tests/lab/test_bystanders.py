"""A rule for a network cuts only the clients whose target it changes.

Clients hold connections while rules around them, beside them and inside of their network are added,
changed and deleted. Each connection lives as long as the rule of its client has the same target.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Final

import pytest

from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.support.device import SERVER, eventually, rule, send

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("nodes")]

LAN: Final = "10.77.0.0/24"
BESIDE: Final = "10.77.0.64/28"
EVERYBODY: Final = "0.0.0.0/0"
API: Final = ("127.0.0.1", 8787)
_TIDIED_S: Final = 0.7
"""Seconds after which a change's work in the background is done."""


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("ss",))) as lab:
        lab.start_egressd()
        yield lab


def drop(lab: Lab, address: str) -> None:
    """Delete the rule of an address or network."""
    (known,) = (known for known in lab.api.get("/rules")["data"] if known["ip"] == address)
    lab.api.delete(f"/rules/{known['id']}")


@contextmanager
def untouched(lab: Lab, *clients: int) -> Iterator[None]:
    """Check that the clients' connections from before the block, idle or busy, work after it."""
    idle = {client: lab.client(client).connect() for client in clients}
    url = f"http://{SERVER}/bytes/100000000000"
    busy = {client: lab.client(client).download(url) for client in clients}
    try:
        assert all(connection.exchange("before").ok for connection in idle.values())
        yield
        time.sleep(_TIDIED_S)
        assert [idle[client].exchange("after").error for client in clients] == [""] * len(clients)
        so_far = {client: busy[client].progress().received for client in clients}
        eventually(
            lambda: all(busy[client].progress().received > so_far[client] for client in clients)
        )
    finally:
        for client in clients:
            idle[client].close()
            busy[client].stop()


@pytest.mark.parametrize("target", ["ss", "Interface:wan2"])
def test_a_rule_for_other_addresses_does_not_cut_connections(lab: Lab, target: str) -> None:
    rule(lab, LAN, target)
    with untouched(lab, 1, 2, 3):
        rule(lab, BESIDE, "DIRECT")
    with untouched(lab, 1, 2, 3):
        rule(lab, BESIDE, "REJECT")
    with untouched(lab, 1, 2, 3):
        drop(lab, BESIDE)


@pytest.mark.parametrize("target", ["ss", "Interface:wan2"])
def test_a_more_specific_rule_with_the_same_target_cuts_no_connection(
    lab: Lab, target: str
) -> None:
    rule(lab, LAN, target)
    address = lab.client(1).address
    for inside in (address, "10.77.0.8/29"):
        with untouched(lab, 1, 2, 3):
            rule(lab, inside, target)
        with untouched(lab, 1, 2, 3):
            drop(lab, inside)


def test_moved_clients_are_cut_and_one_with_its_own_rule_is_not(lab: Lab) -> None:
    rule(lab, LAN, "ss")
    send(lab, 2, "ss")
    with closing(lab.client(1).connect()) as moved, untouched(lab, 2):
        assert moved.exchange("before").ok
        rule(lab, LAN, "DIRECT")
        eventually(lambda: moved.state() != "open")
    assert lab.client(1).http(f"http://{SERVER}/").seen == lab.wan(1).address


def test_a_rule_for_all_addresses_does_not_cut_clients_with_own_rules(lab: Lab) -> None:
    for client, target in ((1, "DIRECT"), (2, "Interface:wan2"), (3, "ss")):
        send(lab, client, target)
    for target in ("REJECT", "DIRECT", "ss", "Interface:wan2", "REJECT"):
        with untouched(lab, 1, 2, 3):
            rule(lab, EVERYBODY, target)
    with untouched(lab, 1, 2, 3):
        drop(lab, EVERYBODY)


def test_a_rule_for_all_addresses_does_not_cut_the_routers_connections(lab: Lab) -> None:
    rule(lab, EVERYBODY, "DIRECT")
    with lab.router.socket(*API) as connection:
        connection.settimeout(5.0)
        rule(lab, EVERYBODY, "ss")
        time.sleep(_TIDIED_S)
        connection.sendall(b"GET /svc/api/v1/rules HTTP/1.1\r\nHost: device\r\n\r\n")
        assert connection.recv(9) == b"HTTP/1.1 "

"""WANs with several addresses: the source that far ends see, on the fast path and the slow one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from egressd_lab.spec import LabSpec
from tests.support.device import SERVER, clear, eventually, send
from tests.support.fast_path import takes_it

pytestmark = pytest.mark.lab

OTHERS = "192.0.2.77", "192.0.2.78"
URL = f"http://{SERVER}/"


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=())) as lab:
        lab.start_egressd()
        yield lab


@pytest.fixture(autouse=True)
def _emptied(lab: Lab) -> Iterator[None]:
    yield
    clear(lab)


@contextmanager
def reached(lab: Lab, number: int) -> Iterator[None]:
    """Let the internet reach the other addresses at a WAN for the block."""
    routes = [(address, "dev", lab.wan(number).far) for address in OTHERS]
    for route in routes:
        lab.internet.run("ip", "route", "add", *route)
    try:
        yield
    finally:
        for route in routes:
            lab.internet.run("ip", "route", "delete", *route)


def set_addresses(lab: Lab, number: int, addresses: list[str]) -> None:
    """Give a WAN these addresses, in this order, and its default route."""
    wan = lab.wan(number)
    lab.router.run("ip", "-4", "address", "flush", "dev", wan.interface)
    for address in addresses:
        lab.router.run("ip", "address", "add", address, "dev", wan.interface)
    default = ("default", "via", wan.gateway, "dev", wan.interface)
    lab.router.run("ip", "route", "replace", *default, "metric", str(100 * number))


@pytest.mark.parametrize(
    "others_first", [[], ["192.0.2.77/32"], ["192.0.2.77/24", "192.0.2.78/24"]]
)
@pytest.mark.parametrize("target", ["DIRECT", "Interface:wan2"])
def test_a_wan_with_several_addresses_keeps_the_fast_path(
    lab: Lab, target: str, others_first: list[str]
) -> None:
    number = 1 if target == "DIRECT" else 2
    wan = lab.wan(number)
    own = f"{wan.address}/30"
    send(lab, 1, target)
    with reached(lab, number):
        try:
            set_addresses(lab, number, [*others_first, own, "192.0.2.200/32"])
            eventually(lambda: lab.client(1).http(URL).seen == wan.address, 10)
            with lab.internet.capture(wan.far) as capture:
                capture.prove()
                connection = lab.client(1).connect(SERVER)
                eventually(lambda: takes_it(lab, 1, connection), 10)
                reply = connection.exchange(token := new_token())
                assert reply.ok
                flows = capture.flows(token, destination=SERVER)
                assert {flow.source for flow in flows} == {wan.address}
        finally:
            set_addresses(lab, number, [own])

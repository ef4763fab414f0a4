"""WANs with several addresses: the source that far ends see, on the fast path and the slow one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from egressd.model.errors import Failed
from egressd_lab.client import Connection
from egressd_lab.lab import Lab
from egressd_lab.packets import new_token
from egressd_lab.spec import LabSpec
from tests.support.device import SERVER, clear, eventually, limit, send
from tests.support.fast_path import takes_it

pytestmark = pytest.mark.lab

OTHERS = "192.0.2.77", "192.0.2.78"
FIXED = OTHERS[0]
"""The source that the configuration names for the third WAN."""
URL = f"http://{SERVER}/"


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=(), wans=3)) as lab:
        lab.start_egressd({"wan": {"sources": {"wan3": FIXED}}})
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


@contextmanager
def holding(lab: Lab, number: int = 3) -> Iterator[None]:
    """Give a WAN the fixed source for the block, as keepalived does."""
    place = (f"{FIXED}/32", "dev", lab.wan(number).interface)
    lab.router.run("ip", "address", "add", *place)
    try:
        yield
    finally:
        lab.router.run("ip", "address", "delete", *place, check=False)


def named(lab: Lab) -> bool:
    """True if the device reports that the fixed source is missing."""
    problems = lab.api.ask("GET", "/ops/overview").body["problems"]
    return any(FIXED in problem and "wan3" in problem for problem in problems)


@pytest.mark.parametrize("target", ["DIRECT", "Interface:wan3"])
def test_clients_leave_with_the_fixed_source_on_both_paths(lab: Lab, target: str) -> None:
    wan = lab.wan(3)
    send(lab, 1, target)
    best = ("default", "via", wan.gateway, "dev", wan.interface, "metric", "1")
    lab.router.run("ip", "route", "add", *best)
    try:
        with reached(lab, 3), holding(lab):
            eventually(lambda: lab.client(1).http(URL).seen == FIXED, 10)
            eventually(lambda: not named(lab), 10)
            with lab.internet.capture(wan.far) as capture:
                capture.prove()
                connection = lab.client(1).connect(SERVER)
                eventually(lambda: takes_it(lab, 1, connection), 10)
                tokens = [new_token() for _ in range(3)]
                assert connection.exchange(tokens[0]).ok
                limit(lab, 1, 10_000)  # limited clients take the slow path
                assert connection.exchange(tokens[1]).ok
                assert not takes_it(lab, 1, connection)
                assert lab.client(1).connect(SERVER).exchange(tokens[2]).ok
                for token in tokens:
                    assert {flow.source for flow in capture.flows(token, destination=SERVER)} == {
                        FIXED
                    }
    finally:
        lab.router.run("ip", "route", "delete", *best)


def test_other_wans_keep_their_own_source(lab: Lab) -> None:
    with reached(lab, 3), holding(lab):
        for number in (2, 3):
            send(lab, number, f"Interface:wan{number}")
        eventually(lambda: lab.client(3).http(URL).seen == FIXED, 10)
        assert lab.client(2).http(URL).seen == lab.wan(2).address


def test_a_wan_without_the_fixed_source_uses_its_own_and_says_so(lab: Lab) -> None:
    send(lab, 1, "Interface:wan3")
    eventually(lambda: named(lab), 10)
    eventually(lambda: lab.client(1).http(URL).seen == lab.wan(3).address, 10)
    connection = lab.client(1).connect(SERVER)
    eventually(lambda: takes_it(lab, 1, connection), 10)
    with reached(lab, 3), holding(lab):
        eventually(lambda: lab.client(1).http(URL).seen == FIXED, 10)
        assert connection.exchange("the connection from before continues").ok
    eventually(lambda: lab.client(1).http(URL).seen == lab.wan(3).address, 10)


def test_the_fixed_source_on_another_wan_is_used_on_none(lab: Lab) -> None:
    for number in (2, 3):
        send(lab, number, f"Interface:wan{number}")
    with reached(lab, 2), holding(lab, 2):
        eventually(lambda: named(lab), 10)
        for number in (2, 3):
            assert lab.client(number).http(URL).seen == lab.wan(number).address


def test_p1_nothing_leaves_with_a_source_that_the_wan_has_lost(lab: Lab) -> None:
    """Flows with it stay in connection tracking, so that another device can continue them."""
    send(lab, 1, "Interface:wan3")
    with reached(lab, 3):
        with holding(lab):
            eventually(lambda: lab.client(1).http(URL).seen == FIXED, 10)
            connection = lab.client(1).connect(SERVER)
            eventually(lambda: takes_it(lab, 1, connection), 10)
        with lab.internet.capture() as capture:
            capture.prove()
            token = new_token()
            eventually(lambda: is_silent(connection, token), 10)
            last = new_token()
            assert is_silent(connection, last)
            assert capture.flows(last) == []
            assert lab.client(1).http(URL).seen == lab.wan(3).address
        with holding(lab):
            eventually(lambda: connection.exchange("it continues").ok, 20)


def is_silent(connection: Connection, token: str) -> bool:
    """True if a connection gets no answer."""
    try:
        return connection.exchange(token, timeout=1).error != ""
    except Failed:
        return True

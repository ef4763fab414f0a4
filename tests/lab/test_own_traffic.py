"""The router's own packets: answers, resets and ICMP errors leave by the WAN that has their source
address, or not at all (P1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from egressd_lab.capture import Capture
from egressd_lab.client import Client
from egressd_lab.lab import Lab
from egressd_lab.packets import TCP, TCP_ACK, UDP, new_token
from egressd_lab.process import Program
from egressd_lab.spec import SERVERS6, LabSpec, Place
from tests.support.device import SERVER, clear, eventually, send, suspended
from tests.support.programs import argv_of

pytestmark = pytest.mark.lab

FORGETS = 40
ASKING = 100


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=())) as lab:
        lab.start_egressd()
        yield lab


@pytest.fixture(autouse=True)
def no_rules(lab: Lab) -> Iterator[None]:
    yield
    clear(lab)


def at(lab: Lab, role: str, address: str) -> Client:
    """Return the probes of a host that is no LAN client, from one of its addresses."""
    host = {"router": lab.router, "internet": lab.internet}[role]
    return Client(host, Place(name=role, role=role, address=address))


@contextmanager
def leaves_by_its_own_wan(lab: Lab) -> Iterator[Capture]:
    """Check that each WAN's address is seen only behind that WAN during the block."""
    with lab.internet.capture() as capture:
        capture.prove()
        yield capture
        for wan in lab.wans:
            seen = {flow.interface for flow in capture.flows(source=wan.address)}
            assert seen <= {wan.far}, f"{wan.address} was seen on {seen}"


def forget(lab: Lab, client: int) -> int:
    """Remove a client's conntrack entries, and return the client's port of a flow to the echo
    server.
    """
    told = lab.router.run("conntrack", "-D", "-s", lab.client(client).address).stdout
    (port,) = re.findall(r"sport=(\d+) dport=7 ", told)[:1]
    return int(port)


@pytest.mark.parametrize("number", [1, 2])
def test_requests_to_a_wans_address_are_answered_by_that_wan(lab: Lab, number: int) -> None:
    wan = lab.wan(number)
    stranger = at(lab, "internet", SERVER)
    lab.internet.run("ip", "route", "replace", wan.address, "dev", wan.far)
    with leaves_by_its_own_wan(lab) as capture:
        assert stranger.ping(wan.address).ok
        assert stranger.http(f"http://{wan.address}:8787/ops/health").status == 200
        assert capture.flows(source=wan.address, interface=wan.far)


@pytest.mark.parametrize("number", [1, 2])
def test_requests_to_a_wans_ipv6_address_are_answered_by_that_wan(lab: Lab, number: int) -> None:
    wan = lab.topology.wans[number - 1]
    stranger = Client(
        lab.internet,
        Place(name="internet", role="internet", address=SERVER, address6=SERVERS6[0]),
    )
    lab.internet.run("ip", "route", "replace", wan.address6, "dev", wan.far)
    with leaves_by_its_own_wan(lab) as capture:
        assert stranger.ping(wan.address6).ok
        assert {f.interface for f in capture.flows(source=wan.address6, protocol="icmpv6")} == {
            wan.far
        }
        # The LAN reaches the router's addresses, too, by its own route.
        assert lab.client(1).ping(wan.address6).ok


@pytest.mark.parametrize("number", [1, 2])
def test_the_routers_packets_from_a_wans_address_leave_by_that_wan(lab: Lab, number: int) -> None:
    wan = lab.wan(number)
    with leaves_by_its_own_wan(lab):
        assert at(lab, "router", wan.address).http(f"http://{SERVER}/").seen == wan.address


def test_the_routers_packets_are_blocked_while_that_wan_has_no_route(lab: Lab) -> None:
    wan = lab.wan(2)
    lab.router.run("ip", "route", "del", "default", "dev", wan.interface)
    try:
        eventually(lambda: not at(lab, "router", wan.address).ping(SERVER, timeout=0.2).ok)
        with leaves_by_its_own_wan(lab):
            assert not at(lab, "router", wan.address).http(f"http://{SERVER}/", timeout=1).ok
    finally:
        wan.restore()
    eventually(lambda: at(lab, "router", wan.address).ping(SERVER, timeout=0.2).ok)


def test_a_packet_routed_before_its_source_was_set_is_dropped(lab: Lab) -> None:
    """Raw sockets send such packets, and so does a daemon that sets no address before it has a
    route.
    """
    with leaves_by_its_own_wan(lab) as capture:
        for source in (lab.wan(2).address, lab.wan(1).address):
            at(lab, "router", source).raw(source, SERVER, text=(token := new_token()))
        eventually(lambda: bool(capture.flows(token)))


def test_a_connection_forgotten_by_conntrack_continues(lab: Lab) -> None:
    """It goes on even if the far end is the first to send again."""
    send(lab, 1, "Interface:wan2")
    far_end, wan = at(lab, "internet", SERVER), lab.wan(2)
    connection = lab.client(1).connect()
    with leaves_by_its_own_wan(lab), lab.router.capture(wan.interface) as arrived:
        for number in range(FORGETS):
            assert connection.exchange(str(number)).ok
            port = forget(lab, 1)
            far_end.raw(
                SERVER, wan.address, protocol=TCP, port=port, source_port=7, flags=TCP_ACK,
                text=(token := new_token()),
            )  # fmt: skip
            eventually(lambda token=token: bool(arrived.flows(token)))  # type: ignore[misc]
    assert connection.state() == "open"
    connection.close()


@pytest.mark.parametrize("protocol", ["tcp", "udp"])
def test_packets_of_an_unknown_flow_get_no_reset_or_error(lab: Lab, protocol: str) -> None:
    """A reset or an ICMP error would end a flow that goes on once the client sends again."""
    wan, token = lab.wan(2), new_token()
    far_end = at(lab, "internet", SERVER)
    with leaves_by_its_own_wan(lab) as capture, lab.router.capture(wan.interface) as arrived:
        if protocol == "udp":
            far_end.raw(SERVER, wan.address, protocol=UDP, port=41_000, source_port=9, text=token)
        else:
            far_end.raw(
                SERVER, wan.address, protocol=TCP, port=41_000, source_port=9, text=token,
                flags=TCP_ACK,
            )  # fmt: skip
        eventually(lambda: bool(arrived.flows(token)))
        capture.prove()
        assert not capture.flows(source=wan.address, destination=SERVER)


def test_without_the_table_errors_leave_by_their_own_wan(lab: Lab) -> None:
    """The table stays away during the test: the policy rules alone hold."""
    wan = lab.wan(2)
    far_end = at(lab, "internet", SERVER)
    send(lab, 1, "Interface:wan2")
    with leaves_by_its_own_wan(lab) as capture, suspended(lab, "egressd.app netd"):
        lab.router.run("nft", "flush", "ruleset")
        for port in range(41_000, 41_100):
            far_end.raw(SERVER, wan.address, port=port, source_port=9)
        far_end.raw(SERVER, wan.address, protocol=TCP, port=41_000, flags=TCP_ACK)
        eventually(lambda: len(errors(capture, wan.address)) == 2)
    eventually(lambda: lab.client(1).http(f"http://{SERVER}/", timeout=1).ok)


def errors(capture: Capture, source: str) -> set[str]:
    return {f.protocol for f in capture.flows(source=source) if f.protocol in ("tcp", "icmp")}


@pytest.mark.parametrize(
    "command",
    ["nft flush ruleset", "nft flush table inet egressd", "nft delete table inet egressd"],
)
def test_p3_pending_answers_are_translated_while_the_table_is_gone(
    lab: Lab, late: int, command: str
) -> None:
    send(lab, 1, "Interface:wan2")
    client = lab.client(1)
    with leaves_by_its_own_wan(lab) as capture, ThreadPoolExecutor(ASKING) as threads:
        token = new_token()
        # Send before the table is removed, since without it requests are refused.
        asked = [
            threads.submit(client.udp_echo, token, SERVER, late, timeout=2) for _ in range(ASKING)
        ]
        eventually(lambda: sum(f.packets for f in capture.flows(token, outgoing=False)) == ASKING)
        with suspended(lab, "egressd.app netd"):
            lab.router.run(*command.split())
            assert {each.result().error for each in asked} == {""}
        assert not capture.flows(source=lab.wan(2).address, protocol="icmp")
    eventually(lambda: client.http(f"http://{SERVER}/", timeout=1).ok)


@pytest.fixture(scope="module")
def late(lab: Lab) -> Iterator[int]:
    """Run a far end that answers late, and yield its port."""
    port = 5_555
    command = argv_of("late", SERVER, str(port))
    program = Program(lab.internet.namespace, command, lab.folder / "late.log", {})
    program.start()
    try:
        eventually(lambda: "ready" in program.tail())
        yield port
    finally:
        program.stop(10)

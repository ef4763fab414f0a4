"""Known flows of VPN lines' clients on the fast path.

The line has no frames (`tests.lab.tun_line`), as PPP has none. `tests/vm` tests PPP itself.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest

from egressd.model.errors import Failed
from egressd.netd.kernel import uapi
from egressd_lab import netns
from egressd_lab.lab import Lab
from egressd_lab.packets import UDP, headers, ipv4, new_token, udp
from egressd_lab.spec import LabSpec
from tests.lab.stand_in_line import ADDRESS, DRAFT, KEYS, LINK, NAME, TARGET
from tests.lab.tun_line import tun_line
from tests.support.device import SERVER, clear, eventually, remove_rule, rule, send
from tests.support.fast_path import hooked, is_cut, passed, takes_it, takes_it_by
from tests.support.netns import JoinedNamespace

pytestmark = pytest.mark.lab

MIB = 1 << 20
LAN = "10.77.0.0/24"
_PORT = 4007
_SMALL, _LARGER_THAN_THE_LINES, _LARGER_THAN_THE_LANS = 100, 1400, 1260
"""Bytes of datagrams. The line's MTU is 1,300, the LAN's 1,280 if a test sets it so."""


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=())) as lab:
        lab.start_egressd()
        yield lab


def is_carried(lab: Lab) -> bool:
    return lab.client(1).http(f"http://{SERVER}/", timeout=2).seen == ADDRESS


@pytest.fixture(autouse=True)
def _line(lab: Lab) -> Iterator[None]:
    lab.api.post("/vpn-lines", DRAFT)
    send(lab, 1, TARGET)
    with tun_line(lab):
        eventually(lambda: is_carried(lab))
        yield
    clear(lab)
    lab.api.delete("/vpn-lines", {"items": KEYS})


def test_transfers_by_a_line_take_the_fast_path_and_arrive_whole(lab: Lab) -> None:
    before = passed(lab, 1)
    reply = lab.client(1).http(f"http://{SERVER}/bytes/{5 * MIB}", verify=True, timeout=30)
    assert (reply.error, reply.size) == ("", 5 * MIB)
    after = passed(lab, 1)
    assert 4.5 * MIB < after.down_bytes - before.down_bytes < 6 * MIB
    reply = lab.client(1).http(f"http://{SERVER}/", method="POST", upload=5 * MIB, timeout=30)
    assert (reply.error, reply.seen) == ("", ADDRESS)
    assert passed(lab, 1).up_bytes - after.up_bytes > 4.5 * MIB


def test_a_line_that_is_up_again_takes_the_fast_path_again(lab: Lab) -> None:
    connection = lab.client(1).connect(SERVER)
    assert takes_it(lab, 1, connection)
    lab.router.run("ip", "link", "set", NAME, "down")
    assert is_cut(connection)
    lab.router.run("ip", "link", "set", NAME, "up")
    eventually(lambda: is_carried(lab))
    assert takes_it(lab, 1, lab.client(1).connect(SERVER))


def test_clients_of_a_cidr_rule_take_the_fast_path_by_a_line(lab: Lab) -> None:
    remove_rule(lab, lab.client(1).address)
    rule(lab, LAN, TARGET)
    assert takes_it_by(lab, LAN, lab.client(1).connect(SERVER))


# --- Packets that are too large. --------------------------------------------------------------


def _answer() -> None:
    """Send each datagram back. Answers that are too large for a link are to be fragmented."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as answering:
        answering.setsockopt(socket.IPPROTO_IP, uapi.IP_MTU_DISCOVER, uapi.IP_PMTUDISC_DONT)
        answering.bind((SERVER, _PORT))
        while True:
            answering.sendto(*answering.recvfrom(4096))


def _answered(source: str, sizes: Sequence[int]) -> list[int]:
    """Send datagrams of these sizes from one socket, and return the sizes of the answers."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.setsockopt(socket.IPPROTO_IP, uapi.IP_MTU_DISCOVER, uapi.IP_PMTUDISC_DONT)
        asking.bind((source, 0))
        asking.settimeout(5)
        asking.connect((SERVER, _PORT))
        answers = []
        for number, size in enumerate(sizes):
            asking.send(f"datagram {number}".encode().ljust(size, b"."))
            answers.append(len(asking.recv(4096)))
        return answers


def _ask(lab: Lab, *sizes: int) -> None:
    """Let client 1 send datagrams whose flow is known, and check that each is answered."""
    wanted = [_SMALL] * 20 + [*sizes]
    before = passed(lab, 1)
    with (
        JoinedNamespace(netns.namespace(lab.name, "client1")) as client,
        JoinedNamespace(lab.internet.namespace) as internet,
    ):
        internet.start(_answer)
        eventually(lambda: f":{_PORT} " in lab.internet.run("ss", "-Huln").stdout)
        assert client.run(_answered, lab.client(1).address, wanted) == wanted
    after = passed(lab, 1)
    assert after.up_packets - before.up_packets > 10
    assert after.down_packets - before.down_packets > 10


def _counted(lab: Lab, name: str) -> int:
    """Return a counter of IP in the router (RFC 4293)."""
    names, values = (
        line.split()
        for line in lab.router.run("cat", "/proc/net/snmp").stdout.splitlines()
        if line.startswith("Ip:")
    )
    return int(values[names.index(name)])


def test_a_datagram_too_large_for_the_line_is_fragmented(lab: Lab) -> None:
    before = _counted(lab, "FragOKs")
    _ask(lab, *[_LARGER_THAN_THE_LINES] * 3)
    assert _counted(lab, "FragOKs") - before == 3


def test_a_datagram_too_large_for_the_lan_is_fragmented(lab: Lab) -> None:
    lab.router.run("ip", "link", "set", "lan0", "mtu", "1280")
    try:
        before = _counted(lab, "FragOKs")
        _ask(lab, *[_LARGER_THAN_THE_LANS] * 3)
        assert _counted(lab, "FragOKs") - before == 3
    finally:
        lab.router.run("ip", "link", "set", "lan0", "mtu", "1500")


# --- Padding. ---------------------------------------------------------------------------------


def _beyond_the_headers(number: int) -> list[int]:
    """Return the bytes that the next datagrams from the line have beyond their IP length."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as reading:
        reading.bind((LINK, uapi.ETH_P_IP))
        reading.settimeout(10)
        found: list[int] = []
        while len(found) < number:
            packet = reading.recv(4096)
            if (seen := headers(packet)) is not None and seen.port == _PORT:
                found.append(len(packet) - int.from_bytes(packet[2:4], "big"))
        return found


@pytest.mark.parametrize(
    ("ip_bytes", "frame_bytes", "is_fast"),
    [(32, 46, True), (40, 46, True), (40, 47, False), (1128, 1428, False)],
)
def test_the_padding_of_frames_does_not_go_on(
    lab: Lab, ip_bytes: int, frame_bytes: int, is_fast: bool
) -> None:
    """Ethernet's shortest frames have 46 bytes without their header."""
    client, number = lab.client(1), 20
    datagram = ipv4(client.address, SERVER, UDP, udp(_PORT + 1, _PORT, bytes(ip_bytes - 28)))
    frames = [datagram.ljust(frame_bytes, b"p")] * number
    before = passed(lab, 1)
    with JoinedNamespace(lab.internet.namespace) as internet:
        reading = internet.start(_beyond_the_headers, number)
        eventually(lambda: f":{LINK}" in lab.internet.run("ss", "-0n").stdout)
        client.host.emit("eth0", *frames, mac=lab.router.mac("lan0"))
        assert reading.result() == [0] * number
    after = passed(lab, 1)
    packets = after.up_packets - before.up_packets
    assert packets > number // 2 if is_fast else packets == 0
    assert after.up_bytes - before.up_bytes == packets * ip_bytes


# --- Nothing leaks. ---------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["Interface:wan2", "REJECT", "DIRECT"])
def test_p1_connections_of_a_client_moved_off_a_line_are_cut(lab: Lab, target: str) -> None:
    connection = lab.client(1).connect(SERVER)
    assert takes_it(lab, 1, connection)
    with lab.internet.capture() as capture:
        token = capture.prove(connection.exchange)
        assert capture.interfaces_of(token) == {LINK}
        send(lab, 1, target)
        token = new_token()
        with suppress(Failed):
            assert connection.exchange(token, timeout=2).error != ""
        assert capture.interfaces_of(token) == set()


@pytest.mark.parametrize("change", ["disabled", "renamed", "deleted"])
def test_p1_nothing_leaves_by_a_line_that_should_not_be_up(lab: Lab, change: str) -> None:
    """Its interface is still there: pppd takes a moment to end."""
    connection = lab.client(1).connect(SERVER)
    assert takes_it(lab, 1, connection)
    with lab.internet.capture() as capture:
        capture.prove(connection.exchange)
        if change == "disabled":
            lab.api.patch("/vpn-lines/status", {"items": KEYS, "is_enabled": False})
        elif change == "renamed":
            renamed = {**DRAFT, "name": "l2tp_new", "is_enabled": True}
            lab.api.put(f"/vpn-lines/l2tp/{NAME}", renamed)
        else:
            lab.api.delete("/vpn-lines", {"items": KEYS})
        try:
            token = new_token()
            with suppress(Failed):
                assert connection.exchange(token, timeout=2).error != ""
            assert capture.interfaces_of(token) == set()
            assert NAME not in hooked(lab)
        finally:
            if change == "renamed":
                lab.api.put("/vpn-lines/l2tp/l2tp_new", {**DRAFT, "is_enabled": True})

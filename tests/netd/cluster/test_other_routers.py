"""Routers of others with the pair's number or shared address are heard on the LAN, and named."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.netd.cluster.other_routers import Advert, OtherRouters, read
from tests.support.netns import Namespace
from tests.support.pairs import PAIR

OTHER, THIRD = "10.77.0.9", "10.77.0.8"
TAKEN = (
    f"{OTHER} on lan0 sends VRRP adverts with this pair's number, 51: give one of the two another "
    "router_id"
)
CLAIMED = (
    f"{THIRD} on lan0 announces the pair's shared address 10.77.0.1 by VRRP as its own: clients "
    "whose packets reach that router are not served by the pair"
)


def packet(body: bytes, *, ttl: int = 255, source: str = OTHER) -> bytes:
    """Return an IPv4 packet of VRRP, as a raw socket receives it."""
    addresses = IPv4Address(source).packed + IPv4Address("224.0.0.18").packed
    return struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(body), 0, 0, ttl, 112, 0) + addresses + body


def body(router_id: int, *addresses: str, version: int = 3) -> bytes:
    """Return an advert; its checksum, which the kernel does not look at, is 0."""
    head = struct.pack("!BBBBHH", version << 4 | 1, router_id, 100, len(addresses), 100, 0)
    return head + b"".join(IPv4Address(each).packed for each in addresses)


@pytest.mark.parametrize("version", [2, 3])
def test_an_advert_is_read_in_both_versions(version: int) -> None:
    found = read(packet(body(51, "10.77.0.1", "10.77.0.5", version=version)))
    addresses = frozenset({IPv4Address("10.77.0.1"), IPv4Address("10.77.0.5")})
    assert found == Advert(IPv4Address(OTHER), 51, addresses)


@pytest.mark.parametrize(
    "wrong",
    [
        packet(body(51), ttl=254),
        packet(body(51)[:7]),
        packet(b""),
        packet(b"\x32" + body(51)[1:]),
    ],
    ids=["from beyond the LAN", "too short", "empty", "another type"],
)
def test_other_packets_are_no_adverts(wrong: bytes) -> None:
    assert read(wrong) is None


@given(st.binary(max_size=300))
def test_any_packet_is_read(body: bytes) -> None:
    found = read(packet(body))
    assert found is None or len(found.addresses) <= len(body) // 4


@pytest.fixture
def lan(namespaces: None) -> Iterator[tuple[Namespace, Namespace]]:
    """Yield a box, and another host on its LAN."""
    with Namespace() as box, Namespace() as host:
        box.cable("lan0", host, "lan0")
        box.shell("ip address add 10.77.0.2/16 dev lan0")
        host.shell("ip address add 10.77.0.9/16 dev lan0")
        yield box, host


def send(*packets: bytes) -> None:
    """Send IPv4 packets to all routers on the LAN."""
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as sending:
        sending.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lan0")
        for each in packets:
            sending.sendto(each, ("224.0.0.18", 0))


def heard(count: int, ready: Path) -> tuple[list[str], list[str], list[str]]:
    """Return the problems once there are so many; 59 s later; and another 2 s later."""
    routers = OtherRouters(PAIR)
    routers.look(0)
    ready.touch()

    def problems(now: float) -> list[str]:
        routers.look(now)
        return [*map(str, routers.problems())]

    while len(problems(0)) < count:
        time.sleep(0.01)
    found = problems(0), problems(59), problems(61)
    routers.close()
    return found


def listen(
    lan: tuple[Namespace, Namespace], count: int, folder: Path, *packets: bytes
) -> tuple[list[str], list[str], list[str]]:
    box, host = lan
    listening = box.start(heard, count, folder / "ready")
    while not (folder / "ready").exists():
        time.sleep(0.01)
    host.run(send, *packets)
    return listening.result()


@pytest.mark.lab
def test_another_router_is_named_for_a_minute(
    lan: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    first, later, at_last = listen(
        lan,
        2,
        tmp_path,
        packet(body(52, "10.77.0.7"), source="10.77.0.5"),
        packet(body(51, "10.77.0.1"), source="10.77.0.3"),  # the other box of the pair
        packet(body(51, "10.77.0.7")),
        packet(body(52, "10.77.0.1"), source=THIRD),
    )
    assert first == later == [TAKEN, CLAIMED]
    assert at_last == []


@pytest.mark.lab
def test_forged_sources_do_not_fill_the_memory(
    lan: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    forged = [packet(body(51), source=f"10.77.1.{n}") for n in range(20)]
    first, *_ = listen(lan, 8, tmp_path, *forged)
    assert len(first) == 8

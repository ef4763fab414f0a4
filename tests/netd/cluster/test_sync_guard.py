"""The table by which states of flows, and words, come from the other box alone."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from ipaddress import IPv4Address
from pathlib import Path

import pytest

from egressd.model.pair import WORD_PORT, Pair, PairLink
from egressd.netd.cluster import cut_flow_sync, sync_guard
from egressd.netd.cluster.flows import PORT
from egressd.netd.kernel.nft import Nft
from tests.support.netns import Namespace

pytestmark = pytest.mark.lab

SYNC = PairLink("sync0", IPv4Address("192.168.77.1"), IPv4Address("192.168.77.2"))
LAN = PairLink("lan0", IPv4Address("10.77.0.1"), IPv4Address("10.77.0.2"))


@pytest.fixture
def box(namespaces: None) -> Iterator[tuple[Namespace, Namespace]]:
    """Yield a box with a sync link and a LAN, and the host at the other end of both."""
    with Namespace() as here, Namespace() as there:
        for name, network in (("sync0", "192.168.77"), ("lan0", "10.77.0")):
            here.cable(name, there, name)
            here.shell(f"ip address add {network}.1/24 dev {name}")
            there.shell(f"ip address add {network}.2/24 dev {name}")
        there.shell("ip address add 192.168.77.3/24 dev sync0")
        there.shell("ip address add 10.77.0.3/24 dev lan0")
        yield here, there


def send(port: int, text: str, source: str, destination: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
        sending.bind((source, 0))
        sending.sendto(text.encode(), (destination, port))


def heard(port: int, ready: Path) -> list[str]:
    """Return the datagrams that reach a port, up to one with the text ``end``."""
    texts: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listening:
        listening.bind(("0.0.0.0", port))
        ready.touch()
        while not texts or texts[-1] != "end":
            texts.append(listening.recv(100).decode())
    return texts


def run(script: str) -> None:
    nft = Nft()
    nft.run(script)
    nft.close()


def connects(port: int, source: str, destination: str) -> bool:
    with socket.socket() as calling:
        calling.settimeout(0.5)
        calling.bind((source, 0))
        return calling.connect_ex((destination, port)) == 0


def test_only_the_other_box_connects_by_the_link(box: tuple[Namespace, Namespace]) -> None:
    here, there = box
    tries = (
        ("192.168.77.2", "192.168.77.1"),
        ("192.168.77.3", "192.168.77.1"),
        ("10.77.0.2", "10.77.0.1"),
        ("192.168.77.2", "10.77.0.1"),
    )

    def connected() -> list[bool]:
        return [there.run(connects, cut_flow_sync.PORT, *each) for each in tries]

    listening = here.start(listen, cut_flow_sync.PORT)
    try:
        while not connected()[0]:
            time.sleep(0.01)
        assert connected() == [True] * len(tries)
        here.run(run, sync_guard.script(Pair(lan=LAN, sync=SYNC)))
        assert connected() == [True, False, False, False]
    finally:
        listening.kill()


def listen(port: int) -> None:
    with socket.create_server(("0.0.0.0", port)) as listening:
        while True:
            listening.accept()[0].close()


@pytest.mark.parametrize(
    ("port", "arriving"), [(PORT, ["peer", "end"]), (WORD_PORT, ["peer", "by the LAN", "end"])]
)
def test_only_the_other_box_reaches_a_port_of_the_pair(
    port: int, arriving: list[str], box: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    here, there = box
    tries = (
        ("peer", "192.168.77.2", "192.168.77.1"),
        ("third", "192.168.77.3", "192.168.77.1"),
        ("by the LAN", "10.77.0.2", "10.77.0.1"),
        ("third on the LAN", "10.77.0.3", "10.77.0.1"),
        ("past the link", "192.168.77.2", "10.77.0.1"),
        ("end", "192.168.77.2", "192.168.77.1"),
    )

    def listened(ready: Path) -> list[str]:
        """Return the texts that arrive of those that are sent."""
        listening = here.start(heard, port, ready)
        while not ready.exists():
            time.sleep(0.01)
        for each in tries:
            there.run(send, port, *each)
        return listening.result()

    pair = Pair(lan=LAN, sync=SYNC)
    assert listened(tmp_path / "open") == [text for text, *_ in tries]
    for _ in range(2):
        here.run(run, sync_guard.script(pair))
    assert listened(tmp_path / "shut") == arriving
    for _ in range(2):
        here.run(run, sync_guard.removal())
    assert sync_guard.TABLE not in here.shell("nft list tables")

"""Devices in LANs as netd reports them, with the kernel's answers in the test's hands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from ipaddress import IPv4Address, IPv4Interface, IPv4Network

import pytest

from egressd.model.facts import Facts, Interface, Route
from egressd.model.messages import DeviceNews, Impostor, SeenNeighbour
from egressd.netd.health import lan_devices
from egressd.netd.health.lan_devices import FRESH_S, LanDevices
from egressd.netd.kernel import impostors, tried
from egressd.netd.kernel.neighbours import Neighbour
from egressd.netd.kernel.tried import Tried
from egressd.planner.topology import Topology
from tests.support.netns import eventually

MAC = bytes.fromhex("02005e005301")
LAN = 7_000_000
"""The index of an interface that this machine does not have."""
FACTS = Facts(
    interfaces={
        "lan0": Interface(
            name="lan0", index=LAN, is_up=True, mtu=1500, addresses=(IPv4Interface("10.0.0.1/16"),)
        )
    },
    routes=(
        Route(
            destination=IPv4Network("0.0.0.0/0"),
            interface="lan0",
            gateway=IPv4Address("10.0.0.254"),
            metric=0,
        ),
    ),
)
TOPOLOGY = Topology(
    lans=("lan0",),
    lan_networks=(("lan0", IPv4Network("10.0.0.0/16")),),
    router_addresses=(IPv4Address("10.0.0.1"),),
)


def neighbour(ip: str, age_s: float = 0.0) -> Neighbour:
    return Neighbour(LAN, IPv4Address(ip).packed, MAC, age_s)


class Looked:
    """netd's looks, and what it reports."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.table: list[Neighbour] = []
        self.tried: list[Tried] = []
        self.impostors: list[Impostor] = []
        self.news: list[DeviceNews] = []
        self.looks = 0
        self.during: Callable[[], None] = lambda: None
        self.devices = LanDevices(lambda: FACTS, lambda: TOPOLOGY, self.news.append)
        monkeypatch.setattr(lan_devices, "seen", self._seen)
        monkeypatch.setattr(tried, "read", lambda: self.tried)
        monkeypatch.setattr(impostors, "read", lambda: self.impostors)

    def _seen(self, interfaces: Collection[int]) -> list[Neighbour]:
        assert interfaces == {LAN}
        self.looks += 1
        self.during()
        return self.table

    def neighbours(self) -> list[SeenNeighbour]:
        return [each for news in self.news for each in news.neighbours]


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Looked:
    return Looked(monkeypatch)


async def test_hosts_of_lans_are_reported_and_no_others(looked: Looked) -> None:
    looked.table = [
        neighbour("10.0.0.5", 7.9),
        neighbour("10.0.0.1"),
        neighbour("10.0.0.254"),
        neighbour("192.0.2.9"),
        Neighbour(LAN + 1, IPv4Address("10.0.0.6").packed, MAC, 0),
    ]
    looked.tried = [
        Tried("10.0.0.5", 6, "203.0.113.9", 443, 3),
        Tried("10.0.0.5", 132, "203.0.113.9", 443, 3),
    ]
    looked.impostors = [Impostor("10.0.0.5", "02:00:5e:00:53:02", 4)]
    looked.devices.start()
    await eventually(lambda: any(news.impostors for news in looked.news))
    await looked.devices.close()
    assert looked.neighbours() == [SeenNeighbour("lan0", "10.0.0.5", "02:00:5e:00:53:01", 7)]
    assert [news.impostors for news in looked.news if news.impostors] == [(*looked.impostors,)]
    (found,) = [news.tried for news in looked.news if news.tried]
    assert [(each.protocol, each.port) for each in found] == [("tcp", 443)]


async def test_old_neighbours_are_reported_to_new_receivers_alone(looked: Looked) -> None:
    looked.table = [neighbour("10.0.0.5", FRESH_S + 1), neighbour("10.0.0.6")]
    looked.devices.start()
    await eventually(lambda: len(looked.neighbours()) == 2)
    looked.devices.look_soon()
    await eventually(lambda: len(looked.neighbours()) == 4)
    await looked.devices.close()
    assert looked.looks == 2


async def test_a_receiver_that_comes_during_a_look_gets_everything(looked: Looked) -> None:
    looked.table = [neighbour("10.0.0.5", FRESH_S + 1)]
    loop = asyncio.get_running_loop()

    def come() -> None:
        looked.during = lambda: None
        loop.call_soon_threadsafe(looked.devices.look_soon)

    looked.during = come
    looked.devices.start()
    await eventually(lambda: looked.looks == 2 and len(looked.neighbours()) == 2)
    await looked.devices.close()


async def test_a_look_that_fails_ends_nothing(looked: Looked) -> None:
    def fail() -> None:
        looked.during = lambda: None
        raise OSError("no buffer space")

    looked.during = fail
    looked.table = [neighbour("10.0.0.5")]
    looked.devices.start()
    await eventually(lambda: looked.looks == 1)
    looked.devices.look_soon()
    await eventually(lambda: len(looked.neighbours()) == 1)
    await looked.devices.close()

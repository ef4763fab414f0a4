"""A LAN that a test fills, and the devices in it."""

from __future__ import annotations

from typing import Any, Final

from egressd.model.console import ChangeRecord
from egressd.model.messages import DeviceNews, DhcpFrame, SeenNeighbour
from egressd.model.times import utc_seconds, utc_text
from egressd.service.bindings import Bindings
from egressd.service.device_views import DeviceSeen
from egressd.service.devices import Devices
from egressd.service.judge import Notice
from tests.support.dhcp import request
from tests.support.use_cases import Bench, KnownLeases, KnownVendors, MemoryDevices, Ticks

START: Final = utc_seconds(Ticks()())
"""The Unix time at which a test begins: that of the other use cases' clock."""


class Lan:
    """A LAN that a test fills, and its devices."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.record = MemoryDevices()
        self.vendors = KnownVendors()
        self.leases = KnownLeases()
        self.at = float(START)
        self.time = 0.0
        self.notices: list[Notice] = []
        self.noted: list[tuple[ChangeRecord, str]] = []
        self.is_standby = False
        self.devices = self.again()

    def again(self) -> Devices:
        """Return the devices of another run with the same record."""
        self.devices = Devices(
            self.bench.ledger,
            self.record,
            vendors=self.vendors,
            leases=self.leases,
            now=lambda: self.at,
            notify=self.notices.append,
            bindings=Bindings(
                self.bench.ledger,
                lambda: utc_text(self.at),
                note=lambda record, subject: self.noted.append((record, subject)),
                is_standby=lambda: self.is_standby,
            ),
        )
        return self.devices

    async def turn(self, after: float = 5.0) -> None:
        self.at += after
        self.time += after
        self.bench.clock.seconds = int(self.at) - START
        await self.devices.turn(self.time)

    def sees(self, mac: str, ip: str, *, age_s: int = 0, interface: str = "lan0") -> None:
        self.devices.take(DeviceNews((SeenNeighbour(interface, ip, mac, age_s),)))

    def hears(self, mac: str, options: dict[int, bytes], *, sender: str = "") -> None:
        frame = DhcpFrame("lan0", sender or mac, request(mac, options))
        self.devices.take(DeviceNews(frames=(frame,)))

    def events(self) -> list[tuple[str, Any]]:
        found = [(n.event.code, n.event.subject) for n in self.notices]
        self.notices.clear()
        return found

    async def macs(self) -> list[str]:
        return [device.mac for device in (await self.devices.list()).rows]

    def get(self, mac: str) -> DeviceSeen:
        return self.devices.get(mac)

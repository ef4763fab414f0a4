"""The known devices in memory: what is seen changes them, and what must be stored is noted.

The number of devices is bounded. A flood of new hardware addresses takes the places of devices that
have been away longest, and never of those that an operator has named or given a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from msgspec.structs import replace

from egressd.model.devices import (
    DEVICE_ADDRESSES_MAX,
    DEVICES_MAX,
    DeviceAddress,
    DhcpLease,
    LanDevice,
)

RECENT_S: Final = 300
"""Seconds for which a device has an address after it was seen with it, and is online."""
FORGOTTEN_AFTER_S: Final = 30 * 86_400
"""Seconds after which a device is forgotten that an operator has done nothing with."""
_FUTURE_S: Final = 3600
"""Seconds by which a noted time may be ahead of the clock: beyond, the clock was set back."""
_ROOM: Final = 64
"""The part of all devices, as 1 to this number, that is forgotten at once to make room."""


class Moved(NamedTuple):
    """A device that turned up with another address."""

    mac: str
    before: str
    ip: str


class DeviceTable:
    """All devices, by hardware address."""

    def __init__(
        self, is_ruled: Callable[[LanDevice], bool], devices_max: int = DEVICES_MAX
    ) -> None:
        """`is_ruled` tells whether a device has a rule of its own, which keeps it."""
        self._is_ruled = is_ruled
        self._devices_max = devices_max
        self.by_mac: dict[str, LanDevice] = {}
        self.holders: dict[str, str] = {}
        """Address -> the device that was seen with it last."""
        self.changed: set[str] = set()
        """Devices that differ from what is stored in more than times."""
        self.touched: set[str] = set()
        """Devices whose times differ from what is stored."""
        self.gone: set[str] = set()
        """Devices that are stored and are to be deleted there."""
        self.fresh: dict[str, None] = {}
        """Devices that are new since the caller cleared this."""
        self.moved: list[Moved] = []
        """Moves since the caller cleared this, those of new devices too."""

    def take(self, devices: Iterable[LanDevice]) -> None:
        """Put stored devices in."""
        for device in devices:
            self.by_mac[device.mac] = device
        for device in sorted(self.by_mac.values(), key=lambda each: each.last_seen):
            for address in reversed(device.addresses):
                self.holders[address.ip] = device.mac

    def see(self, mac: str, ip: str, interface: str, at: int) -> None:
        """Note that a device was seen with an address."""
        device = self._device(mac, at)
        if device is None:
            return
        others = [each for each in device.addresses if each.ip != ip]
        mine = next((each for each in device.addresses if each.ip == ip), None)
        seen = DeviceAddress(ip, interface, at if mine is None else _later(mine.last_seen, at))
        if seen == mine:
            return
        if all(each.last_seen < seen.last_seen for each in others):
            self._note_move(device, mine, others, ip, at)
            self.holders[ip] = mac
        addresses = sorted((seen, *others), key=lambda each: -each.last_seen)
        self._release(mac, addresses[DEVICE_ADDRESSES_MAX:])
        after = replace(
            device,
            addresses=tuple(addresses[:DEVICE_ADDRESSES_MAX]),
            last_seen=_later(device.last_seen, at),
        )
        self._put(after, is_other=mine is None or mine.interface != interface)

    def describe(self, mac: str, hostname: str, vendor_class: str, at: int) -> None:
        """Note what a device says about itself. An empty text changes nothing."""
        device = self._device(mac, at)
        if device is None:
            return
        after = replace(
            device,
            hostname=hostname or device.hostname,
            vendor_class=vendor_class or device.vendor_class,
            last_seen=_later(device.last_seen, at),
        )
        is_other = (after.hostname, after.vendor_class) != (device.hostname, device.vendor_class)
        self._put(after, is_other=is_other)

    def lease(self, lease: DhcpLease, at: int) -> None:
        """Note what a DHCP server of this machine knows of a device. That is no sign of life."""
        device = self._device(lease.mac, at)
        if device is None:
            return
        addresses = device.addresses
        if all(each.ip != lease.ip for each in addresses):
            kept = (each for each in addresses if each.last_seen)
            addresses = (*kept, DeviceAddress(lease.ip, "", 0))[-DEVICE_ADDRESSES_MAX:]
        after = replace(device, hostname=lease.hostname or device.hostname, addresses=addresses)
        if after != device:
            self._put(after, is_other=True)

    def edit(self, device: LanDevice) -> None:
        """Put a device that an operator has changed, and that is stored already."""
        self.by_mac[device.mac] = device
        self.changed.discard(device.mac)

    def forget(self, macs: Collection[str]) -> None:
        """Remove devices."""
        for mac in macs:
            device = self.by_mac.pop(mac)
            self._release(mac, device.addresses)
            self.fresh.pop(mac, None)
            self.changed.discard(mac)
            self.touched.discard(mac)
            self.gone.add(mac)

    def expire(self, at: int) -> None:
        """Forget the devices that have been away long, and that are no operator's."""
        self.forget(
            [
                device.mac
                for device in self.by_mac.values()
                if at - device.last_seen > FORGOTTEN_AFTER_S and not self._is_held(device)
            ]
        )

    def address(self, device: LanDevice) -> str:
        """Return the address that the device has, or had last; empty if another one has it now."""
        ip = device.addresses[0].ip if device.addresses else ""
        return ip if self.holders.get(ip, device.mac) == device.mac else ""

    def _device(self, mac: str, at: int) -> LanDevice | None:
        """Return a device, a new one if it is unknown; None if there is no room."""
        device = self.by_mac.get(mac)
        if device is not None:
            return device
        if len(self.by_mac) >= self._devices_max:
            self._make_room()
            if len(self.by_mac) >= self._devices_max:
                return None
        device = LanDevice(mac=mac, first_seen=at, last_seen=at)
        self.by_mac[mac] = device
        self.changed.add(mac)
        self.gone.discard(mac)
        self.fresh[mac] = None
        return device

    def _put(self, device: LanDevice, *, is_other: bool) -> None:
        self.by_mac[device.mac] = device
        (self.changed if is_other else self.touched).add(device.mac)

    def _note_move(
        self,
        device: LanDevice,
        mine: DeviceAddress | None,
        others: Collection[DeviceAddress],
        ip: str,
        at: int,
    ) -> None:
        """Note a move. A device that uses several addresses at a time, as a router with hosts
        behind it does, does not move between them.
        """
        before = next((each for each in device.addresses if each.last_seen), None)
        recent = [each for each in others if at - each.last_seen <= RECENT_S]
        is_back = mine is not None and at - mine.last_seen <= RECENT_S
        if before is not None and before.ip != ip and not is_back and len(recent) <= 1:
            self.moved.append(Moved(device.mac, before.ip, ip))

    def _release(self, mac: str, addresses: Iterable[DeviceAddress]) -> None:
        for address in addresses:
            if self.holders.get(address.ip) == mac:
                del self.holders[address.ip]

    def _is_held(self, device: LanDevice) -> bool:
        return device.is_kept or self._is_ruled(device)

    def _make_room(self) -> None:
        number = max(1, self._devices_max // _ROOM)
        oldest: list[str] = []
        for device in sorted(self.by_mac.values(), key=lambda each: each.last_seen):
            if not self._is_held(device):
                oldest.append(device.mac)
                if len(oldest) == number:
                    break
        self.forget(oldest)


def _later(noted: int, at: int) -> int:
    return at if at > noted or noted - at > _FUTURE_S else noted

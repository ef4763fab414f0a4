"""Devices: hosts of LANs, known by their hardware addresses."""

from __future__ import annotations

import re
from typing import Final

import msgspec

DEVICES_MAX: Final = 65_536
DEVICE_ADDRESSES_MAX: Final = 8
"""Addresses of one device that are kept, those that were seen last."""
DEVICE_NAME_MAX: Final = 64
"""Characters of the name that an operator gives a device."""

_MAC: Final = re.compile(r"(?:[0-9A-Fa-f]{2}([:-]))(?:[0-9A-Fa-f]{2}\1){4}[0-9A-Fa-f]{2}", re.ASCII)


class DeviceAddress(msgspec.Struct, frozen=True, array_like=True):
    """An address that a device has been seen with. Times are Unix times."""

    ip: str
    interface: str
    last_seen: int
    """0 if a DHCP server has given it the address, and it has not been seen with it."""


class LanDevice(msgspec.Struct, frozen=True, kw_only=True):
    """A device, as it was seen. `name` and `comment` are the operator's; the other texts are its
    own, cleaned. Times are Unix times.
    """

    mac: str
    name: str = ""
    comment: str = ""
    hostname: str = ""
    vendor_class: str = ""
    first_seen: int
    last_seen: int
    addresses: tuple[DeviceAddress, ...] = ()
    """The address that was seen last comes first."""

    @property
    def is_kept(self) -> bool:
        """True if it has something of an operator's."""
        return bool(self.name or self.comment)


class DhcpLease(msgspec.Struct, frozen=True, kw_only=True):
    """An address that a DHCP server has given a device."""

    mac: str
    ip: str
    hostname: str = ""


def normal_mac(text: str) -> str | None:
    """Return a hardware address in lower case with colons; None if it is none of a host."""
    if not _MAC.fullmatch(text):
        return None
    mac = text.replace("-", ":").lower()
    return None if int(mac[:2], 16) & 1 or not int(mac.replace(":", ""), 16) else mac


def is_random_mac(mac: str) -> bool:
    """True if a host has made the address up: it is locally administered (IEEE 802)."""
    return bool(int(mac[:2], 16) & 2)

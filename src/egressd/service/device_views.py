"""A device as it is shown: what was seen of it, with its rule."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from egressd.model.devices import LanDevice, is_random_mac
from egressd.model.messages import TriedDestination
from egressd.model.times import utc_text
from egressd.service.device_rules import RuleFound
from egressd.service.device_table import RECENT_S

_TRIED_MAX: Final = 8
"""Destinations that a device shows."""


class AddressSeen(msgspec.Struct, frozen=True, kw_only=True):
    """An address of a device."""

    ip: str
    interface: Annotated[str, Meta(description="The LAN; empty if only a lease has the address.")]
    last_seen: Annotated[str, Meta(description="Empty if only a lease has the address.")]


class TriedSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A destination that a device was refused."""

    protocol: Literal["tcp", "udp"]
    ip: str
    port: int
    packets: Annotated[
        int, Meta(description="Refused packets; the count ends after an hour without any.")
    ]


class DeviceSeen(msgspec.Struct, frozen=True, kw_only=True):
    """A device of a LAN."""

    mac: str
    name: Annotated[str, Meta(description="The operator's name for it.")]
    hostname: Annotated[str, Meta(description="Its own name, cleaned. Any device can lie.")]
    vendor: Annotated[
        str, Meta(description="The maker of its network card; else of its DHCP client.")
    ]
    is_random_mac: Annotated[bool, Meta(description="True if it has made its address up.")]
    addresses: Annotated[
        tuple[AddressSeen, ...], Meta(description="The one that was seen last comes first.")
    ]
    first_seen: str
    last_seen: str
    is_online: Annotated[
        bool, Meta(description="True if it was seen with an address within five minutes.")
    ]
    rule_id: Annotated[
        int | None, Meta(description="The rule of its address; null if it has none of its own.")
    ]
    covered_by: Annotated[
        str, Meta(description="The CIDR of the rule that covers it otherwise; empty if none does.")
    ]
    tried: Annotated[
        tuple[TriedSeen, ...],
        Meta(
            description="Where it was refused within the last hour, the most packets first, if no "
            "rule covers it."
        ),
    ]
    is_bound: Annotated[
        bool,
        Meta(description="True if a rule belongs to it: no other device may use that address."),
    ]
    comment: str


class DevicesFound(msgspec.Struct, frozen=True, kw_only=True):
    """The first devices of all, or of those that were searched."""

    total: int
    without_rule: int
    """The number of them that no rule covers."""
    rows: list[DeviceSeen]


def shown(
    device: LanDevice,
    at: int,
    *,
    vendor: str,
    rule: RuleFound,
    tried: Iterable[TriedDestination],
    is_bound: bool,
) -> DeviceSeen:
    """Return a device as it is shown at a Unix time. `rule` is that of its address."""
    return DeviceSeen(
        mac=device.mac,
        name=device.name,
        hostname=device.hostname,
        vendor=vendor,
        is_random_mac=is_random_mac(device.mac),
        addresses=tuple(
            AddressSeen(ip=each.ip, interface=each.interface, last_seen=_time(each.last_seen))
            for each in device.addresses
        ),
        first_seen=_time(device.first_seen),
        last_seen=_time(device.last_seen),
        is_online=any(at - each.last_seen <= RECENT_S for each in device.addresses),
        rule_id=rule.rule_id,
        covered_by=rule.covered_by,
        tried=tuple(
            TriedSeen(
                protocol="tcp" if each.protocol == "tcp" else "udp",
                ip=each.ip,
                port=each.port,
                packets=each.packets,
            )
            for each in tried
        ),
        is_bound=is_bound,
        comment=device.comment,
    )


def tried_by_client(tried: Iterable[TriedDestination]) -> dict[str, list[TriedDestination]]:
    """Return the destinations with the most packets of each client."""
    found: dict[str, list[TriedDestination]] = {}
    for each in sorted(tried, key=lambda each: -each.packets):
        of_client = found.setdefault(each.client, [])
        if len(of_client) < _TRIED_MAX:
            of_client.append(each)
    return found


@lru_cache(maxsize=4096)
def _time(at: int) -> str:
    """Return a time as text: devices of one look have the same."""
    return utc_text(at) if at else ""

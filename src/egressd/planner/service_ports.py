"""The ports that a proxy service may listen on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from egressd.planner.registry import ENGINE_PORTS, LINE_PORTS

RESERVED: Final[Mapping[int, str]] = {
    22: "SSH",
    53: "DNS",
    67: "DHCP",
    68: "DHCP",
    123: "NTP",
    500: "IPsec",
    546: "DHCPv6",
    547: "DHCPv6",
    1701: "L2TP",
    1723: "PPTP",
    4500: "IPsec",
}
"""Ports of services that a router runs, or may run, on itself."""


def reason_reserved(port: int, own: Mapping[int, str] = {}) -> str | None:
    """Return the reserved use of `port`, or None. `own` are the ports that egressd listens on."""
    for ports, use in ((ENGINE_PORTS, "the engine"), (LINE_PORTS, "VPN lines")):
        if port in ports:
            return f"{use}, as are all from {ports.start} to {ports.stop - 1}"
    return own.get(port) or RESERVED.get(port)

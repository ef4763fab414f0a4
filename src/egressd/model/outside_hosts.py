"""The hosts that this device connects to on an errand of its own: none of a LAN, and not itself.

A name may lead anywhere. The engine asks for its addresses, and refuses those in `INNER`; the
kernel lets the engine's sockets reach no LAN and not this machine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Final, NamedTuple

from egressd.model.wording import Value

INNER: Final = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.168.0.0/16",
        "224.0.0.0/3",
    )
)
"""This machine, private and shared networks, links, and what is no host's (RFC 6890)."""

_NUMBER: Final = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)", re.IGNORECASE)


class UnfitUrl(NamedTuple):
    """The code and the values of a fault."""

    code: str
    values: Mapping[str, Value] = {}


def why_not_host(host: str) -> UnfitUrl | None:
    """Return the reason why no errand leads to a host, a name or an address; None if one may."""
    name = host.lower().rstrip(".")
    if not name:
        return UnfitUrl("errand-host-none")
    if name == "localhost" or name.endswith(".localhost"):
        return UnfitUrl("errand-host-inner", {"host": host[:60]})
    if ":" in name:
        return UnfitUrl("errand-host-ipv6", {"host": host[:60]})
    if not _NUMBER.fullmatch(name.rpartition(".")[2]):
        return None
    try:
        address = IPv4Address(name)
    except ValueError:
        # Programs read it as an address of another form, as 127.1 or 2130706433.
        return UnfitUrl("errand-host-form", {"host": host[:60]})
    if any(address in network for network in INNER):
        return UnfitUrl("errand-host-inner", {"host": host[:60]})
    return None

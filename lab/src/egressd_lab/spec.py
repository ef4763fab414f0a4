"""The specification of a lab, and the addressing plan that follows from it. Pure.

All addresses are from ranges set aside for documentation and benchmarks (RFC 5737, RFC 2544, RFC
3849), private use (RFC 1918), or belong to well-known resolvers that clients name by habit; inside
the lab's namespaces none of them leads anywhere else.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from typing import Final

import msgspec

from egressd.model.errors import Invalid

CLIENTS_MAX: Final = 10_000
WANS_MAX: Final = 64
OWN_NAMESPACE: Final = 3
"""Clients that have a namespace each; further ones share the namespace ``crowd``."""
_SMALL_LAN_MAX: Final = 200
_WANS_OF_BOXES_MAX: Final = 16

LAN_ADDRESS: Final = IPv4Address("10.77.0.1")
GUEST_NETWORK: Final = IPv4Network("10.78.0.0/24")
BOXES_MAX: Final = 2
SYNC_NETWORK: Final = IPv4Network("192.168.77.0/30")
"""The link between two boxes, ``sync0`` on each."""
ONE_ARM_GATEWAY: Final = IPv4Address("10.77.0.254")
SPOOFER_ADDRESS: Final = IPv4Address("10.77.0.250")
LAN6: Final = "2001:db8:77::"
SERVERS6: Final = ("2001:db8:f::10",)

WEB_SERVERS: Final = ("203.0.113.10", "203.0.113.11", "203.0.113.12")
RESOLVERS: Final[Mapping[str, str]] = {
    "device": "203.0.113.53",
    "domestic": "203.0.113.54",
    "overseas": "203.0.113.55",
    "return": "203.0.113.56",
    "node": "203.0.113.57",
    "google": "8.8.8.8",
    "cloudflare": "1.1.1.1",
    "quad9": "9.9.9.9",
    "alidns": "223.5.5.5",
}
"""Resolvers by role. All answer from the same zone, and each records its queries and
their sources.
"""

NODE_GATEWAY: Final = "192.0.2.1"
NODE_NETWORK: Final = IPv4Network("192.0.2.0/24")
ENGINE_NETWORK: Final = IPv4Network("198.18.0.0/15")
WAN_NETWORK: Final = IPv4Network("198.51.100.0/24")

ZONE: Final[Mapping[str, tuple[str, ...]]] = {
    "*.test": ("203.0.113.10",),
    "www.example.com": ("203.0.113.10",),
    "other.example.com": ("203.0.113.11",),
    "www.gstatic.com": ("203.0.113.12",),
    "dual.test": ("203.0.113.10", "2001:db8:f::10"),
}
"""The names that the resolvers know. ``*.`` matches any depth beneath it."""
WHOAMI: Final = "whoami.test"
"""Queries for this name, and for every name beneath it, are answered with the querying address."""

HTTP_PORTS: Final = (80, 8000, 8080)
HTTPS_PORTS: Final = (443, 8443)
TCP_ECHO_PORTS: Final = (7, 22, 853)
UDP_ECHO_PORTS: Final = (7, 443, 853, 3478, 17_000)
DISCARD_PORT: Final = 9
"""UDP: taken and never answered, so that a flood causes no ICMP error and no echo."""

_LAB_NAME: Final = re.compile(r"[a-z0-9]{1,12}\Z")


class LabSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a lab. The default suits most tests."""

    name: str = ""
    """1 to 12 of ``a-z0-9``; empty for a random one."""
    clients: int = OWN_NAMESPACE
    wans: int = 2
    second_lan: bool = False
    """Also a ``lan1`` (10.78.0.1/24) with clients ``guest1`` and ``guest2``."""
    one_arm: bool = False
    """The router's single interface ``lan0`` shares a segment with clients and gateway."""
    boxes: int = 1
    """Routers side by side: with 2, each has addresses of its own on LAN and WANs, and the first
    ones, `LAN_ADDRESS` and `WanPlan.shared`, are for the active one to take."""
    nodes: tuple[str, ...] = ("socks5", "socks5-udp", "http", "ss")
    """Node kinds to start, each once, under the kind's name."""
    zone: dict[str, tuple[str, ...]] = {}
    """Names to answer beyond `ZONE`."""

    def check(self) -> None:
        """Raise Invalid with everything that is wrong about this spec."""
        problems = []
        if self.name and not _LAB_NAME.match(self.name):
            problems.append("name must have 1 to 12 of the characters a-z and 0-9")
        if not 1 <= self.clients <= CLIENTS_MAX:
            problems.append(f"clients must be 1 to {CLIENTS_MAX}")
        if not 1 <= self.wans <= WANS_MAX:
            problems.append(f"wans must be 1 to {WANS_MAX}")
        if self.one_arm and self.wans != 1:
            problems.append("wans must be 1 in one-arm use")
        if not 1 <= self.boxes <= BOXES_MAX:
            problems.append(f"boxes must be 1 to {BOXES_MAX}")
        if self.boxes > 1 and (self.one_arm or self.second_lan or self.wans > _WANS_OF_BOXES_MAX):
            problems.append(f"two boxes have one LAN and 1 to {_WANS_OF_BOXES_MAX} WANs")
        if problems:
            raise Invalid(*problems)

    @property
    def lan_prefix(self) -> int:
        """Prefix length of the first LAN: 24, or 16 if the number of clients needs it."""
        return 24 if self.clients <= _SMALL_LAN_MAX else 16


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A LAN client: the namespace of its probes, and their source address."""

    name: str
    role: str
    """The namespace's role: its own name, or ``crowd``."""
    address: str
    address6: str = ""
    lan: str = "lan0"


class WanPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A WAN: ``interface`` in the router, ``far`` on the internet's side."""

    number: int
    interface: str
    far: str
    address: str
    gateway: str
    prefix: int
    address6: str
    gateway6: str
    shared: str = ""
    """The address that the active one of two boxes takes."""
    box: int = 1

    @property
    def metric(self) -> int:
        """Metric of its default route in the router's main table: 100, 200, …"""
        return 100 * self.number


def router_role(box: int) -> str:
    """Return the role of a box's namespace: ``router``, ``router2``."""
    return "router" if box == 1 else f"router{box}"


def lan_address(spec: LabSpec, box: int) -> IPv4Address:
    """Return a box's own address on ``lan0``: 10.77.0.2 and .3 if there are two."""
    return LAN_ADDRESS if spec.boxes == 1 else LAN_ADDRESS + box


def sync_address(box: int) -> IPv4Address:
    """Return a box's address on the link between two."""
    return SYNC_NETWORK[box]


def wan_plans(spec: LabSpec, box: int = 1) -> list[WanPlan]:
    """Return the WANs of a box, by number from 1: consecutive /30s of 198.51.100.0/24, or /28s if
    there are two boxes.
    """
    if spec.boxes > 1:
        return [_shared_wan(n, box) for n in range(1, spec.wans + 1)]
    if spec.one_arm:
        return [
            WanPlan(
                number=1,
                interface="lan0",
                far="isp1",
                address=str(LAN_ADDRESS),
                gateway=str(ONE_ARM_GATEWAY),
                prefix=spec.lan_prefix,
                address6=f"{LAN6}1",
                gateway6=f"{LAN6}fe",
            )
        ]
    return [
        WanPlan(
            number=n,
            interface=f"wan{n}",
            far=f"isp{n}",
            address=str(WAN_NETWORK[4 * (n - 1) + 2]),
            gateway=str(WAN_NETWORK[4 * (n - 1) + 1]),
            prefix=30,
            address6=f"2001:db8:a:{n:x}::2",
            gateway6=f"2001:db8:a:{n:x}::1",
        )
        for n in range(1, spec.wans + 1)
    ]


def _shared_wan(n: int, box: int) -> WanPlan:
    base = WAN_NETWORK[16 * (n - 1)]
    return WanPlan(
        number=n,
        interface=f"wan{n}",
        far=f"isp{n}",
        address=str(base + 1 + box),
        gateway=str(base + 1),
        prefix=28,
        address6=f"2001:db8:a:{n:x}::{1 + box}",
        gateway6=f"2001:db8:a:{n:x}::1",
        shared=str(base + 10),
        box=box,
    )


def client_places(spec: LabSpec) -> list[Place]:
    """Return the LAN's clients: ``client1`` at 10.77.0.11 and so on, the guests, the spoofer."""
    places = [_client(n, spec) for n in range(1, spec.clients + 1)]
    places.append(
        Place(
            name="spoofer",
            role="spoofer",
            address=str(SPOOFER_ADDRESS),
            address6=f"{LAN6}fa",
        )
    )
    if spec.second_lan:
        places += [
            Place(name=f"guest{n}", role=f"guest{n}", address=f"10.78.0.{10 + n}", lan="lan1")
            for n in (1, 2)
        ]
    return places


def _client(n: int, spec: LabSpec) -> Place:
    if n <= OWN_NAMESPACE:
        address6 = f"{LAN6}{10 + n:x}"
        return Place(
            name=f"client{n}", role=f"client{n}", address=f"10.77.0.{10 + n}", address6=address6
        )
    if spec.lan_prefix == 24:
        address = f"10.77.0.{10 + n}"
    else:
        # From 10.77.1.1 on, 250 for each third octet: .0, .254 and .255 are not used.
        high, low = divmod(n - OWN_NAMESPACE - 1, 250)
        address = f"10.77.{1 + high}.{1 + low}"
    return Place(name=f"client{n}", role="crowd", address=address)

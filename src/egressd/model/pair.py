"""A pair: two boxes on one LAN, of which one is active and holds the shared addresses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface
from typing import Final, Literal

PairRole = Literal["active", "standby", "fault"]
"""A box's role. One in "fault" cannot become active: it has no lease, or its LAN is down."""


WORD_PORT: Final = 3781
"""UDP port at which each box answers whether it reaches the site's database."""
ROLES: Final[Mapping[PairRole, str]] = {
    "active": "active: it has the shared addresses",
    "standby": "on standby: the other box has the shared addresses",
    "fault": "not able to become active: it has no lease, or its LAN is down",
}
"""The roles in words, after "this box is"."""


@dataclass(frozen=True)
class PairLink:
    """An interface on which the two boxes reach each other by addresses that never move."""

    interface: str
    own: IPv4Address
    peer: IPv4Address


@dataclass(frozen=True)
class Pair:
    lan: PairLink
    """The LAN. The boxes notice there that the other one is gone: a box whose LAN is down must not
    be active anyway, while a sync link that is down is no reason for two active boxes."""
    sync: PairLink
    """The link that carries the states of flows. Nothing on it is authenticated."""
    shared: Mapping[str, IPv4Interface] = field(default_factory=dict)
    """Interface -> the address that the active box has on it."""
    router_id: int = 51
    """The number of the pair in VRRP (RFC 5798, 5.2.3): one for each pair on a LAN."""
    advert_ms: int = 300
    """Milliseconds between two adverts. After three missing ones, the other box takes over."""


def faults(pair: Pair) -> Iterator[str]:
    """Yield a sentence about each contradiction in the configuration of a pair."""
    for name, link in (("lan", pair.lan), ("sync", pair.sync)):
        if link.own == link.peer:
            yield f"{name}: this box and its peer have the same address {link.own}"
    if pair.lan.interface == pair.sync.interface:
        yield f"sync: {pair.sync.interface} is the LAN: the sync link needs an interface of its own"
    if not pair.shared:
        yield "shared: must not be empty"
    if pair.sync.interface in pair.shared:
        yield f"shared: {pair.sync.interface} is the sync link"
    holders: dict[IPv4Address, str] = {}
    fixed = {link.own: "this box's own" for link in (pair.lan, pair.sync)}
    fixed |= {link.peer: "the peer's own" for link in (pair.lan, pair.sync)}
    for name, address in pair.shared.items():
        if address.ip in fixed:
            yield f"shared: {address.ip} of {name} is {fixed[address.ip]} address"
        if address.ip in holders:
            yield f"shared: {holders[address.ip]} and {name} have the same address {address.ip}"
        holders[address.ip] = name


def holds_shared(pair: Pair, present: Mapping[str, Collection[IPv4Interface]]) -> bool:
    """True if a box with the interfaces and addresses `present` has each shared address."""
    return all(
        any(each.ip == address.ip for each in present.get(name, ()))
        for name, address in pair.shared.items()
    )


def faults_here(pair: Pair, present: Mapping[str, Collection[IPv4Interface]]) -> Iterator[str]:
    """Yield a sentence about each fault of a pair's configuration on a box with the interfaces and
    addresses `present`.
    """
    for link in (pair.lan, pair.sync):
        if link.interface not in present:
            yield f"this box has no interface {link.interface}"
            continue
        networks = [each.network for each in present[link.interface] if each.ip == link.own]
        if not networks:
            yield f"{link.interface} does not have the address {link.own}"
        elif not any(link.peer in network for network in networks):
            yield f"the peer {link.peer} is not in the network of {link.own} on {link.interface}"
    for name, address in pair.shared.items():
        if name not in present:
            yield f"this box has no interface {name} for the shared address {address.ip}"


def unaddressed(pair: Pair, present: Mapping[str, Collection[IPv4Interface]]) -> list[str]:
    """Return the interfaces with a shared address on which a box with the addresses `present` has
    none of its own: the provider gives none at present, or the link is down (systemd-networkd takes
    an interface's addresses away with its carrier, see systemd.network(5), IgnoreCarrierLoss=).
    """
    return [
        name
        for name, address in pair.shared.items()
        if name != pair.lan.interface and name in present
        if all(each.ip == address.ip for each in present[name])
    ]

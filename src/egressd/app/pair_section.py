"""The section ``[pair]`` of the configuration file: this box is one of two on a LAN."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Interface
from typing import Any, Final, Literal, get_args

from egressd.app import toml_values as toml
from egressd.app.toml_values import reads
from egressd.model.pair import Pair, PairLink, faults

Alone = Literal["keep", "block"]
_LINK: Final = ("interface", "own", "peer")


def _link(given: Any) -> PairLink:
    if not isinstance(given, dict) or set(given) != set(_LINK):
        raise ValueError(
            'must have interface, own and peer: { interface = "lan0", own = "10.77.0.2",'
            ' peer = "10.77.0.3" }'
        )
    interface, own, peer = (given[name] for name in _LINK)
    return PairLink(toml.interface(interface), toml.address(own), toml.address(peer))


def _shared(given: Any) -> IPv4Interface:
    try:
        address = IPv4Interface(toml.text(given))
    except ValueError:
        raise ValueError("must be an IPv4 address in quotes, with a prefix or without") from None
    if address.ip.is_loopback or address.ip.is_multicast or not address.ip.packed[0]:
        raise ValueError("must be the address of a host")
    return address


@dataclass(frozen=True)
class PairSection:
    lan: PairLink | None = field(default=None, metadata=reads(_link))
    """The LAN, with the addresses of both boxes there that never move."""
    sync: PairLink | None = field(default=None, metadata=reads(_link))
    """A link between the boxes that carries the states of flows and nothing else."""
    shared: dict[str, IPv4Interface] = field(
        default_factory=dict, metadata=reads(toml.mapped(toml.interface, _shared))
    )
    """LAN or WAN -> the address that the active box has there."""
    router_id: int = field(default=51, metadata=reads(toml.number(1, 255)))
    """The pair's number in VRRP: one for each pair on a LAN."""
    advert_ms: int = field(default=300, metadata=reads(toml.number(100, 10_000)))
    """Milliseconds between two adverts of the active box. After three missing ones, the other box
    takes over."""

    alone: Alone = field(default="keep", metadata=reads(toml.choice(*get_args(Alone))))
    """The fate of clients while this box reaches neither the site's database nor the other box:
    they keep their ways out by the last configuration, or are blocked."""

    @property
    def pair(self) -> Pair | None:
        """The pair, or None for a box that is alone."""
        if self.lan is None or self.sync is None:
            return None
        return Pair(
            lan=self.lan,
            sync=self.sync,
            shared=self.shared,
            router_id=self.router_id,
            advert_ms=self.advert_ms,
        )

    def sources(self, wans: Collection[str]) -> dict[str, IPv4Address]:
        """Return WAN -> the shared address there, which clients' packets get on the active box."""
        return {name: each.ip for name, each in self.shared.items() if name in wans}

    def faults(
        self, lans: Collection[str], wans: Collection[str], *, has_site: bool
    ) -> Iterator[str]:
        """Yield a sentence about each fault, on a box with these configured LANs and WANs."""
        if self == PairSection():
            return
        pair = self.pair
        if pair is None:
            yield "pair.lan and pair.sync: must both be set"
            return
        yield from (f"pair.{fault}" for fault in faults(pair))
        if not has_site:
            yield "pair: needs [cluster]: both boxes have the configuration of one site"
        if not lans or not wans:
            yield "pair: needs lan.interfaces and wan.interfaces: the sync link must be neither"
        if pair.lan.interface not in lans:
            yield f"pair.lan: {pair.lan.interface} must be in lan.interfaces"
        if pair.sync.interface in {*lans, *wans}:
            yield f"pair.sync: {pair.sync.interface} must not be a LAN or WAN"
        if pair.lan.interface not in pair.shared:
            yield f"pair.shared: must have {pair.lan.interface}: it is the gateway of clients"
        for name in pair.shared:
            if name not in {*lans, *wans}:
                yield f"pair.shared: {name} must be in lan.interfaces or wan.interfaces"

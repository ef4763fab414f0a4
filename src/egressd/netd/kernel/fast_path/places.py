"""The places of clients, of those with rules of their own and of the networks of CIDR rules."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Mapping
from ipaddress import IPv4Network
from typing import Final, NamedTuple

from egressd.netd.kernel.address_ranges import Ranges
from egressd.netd.kernel.fast_path import elements
from egressd.netd.kernel.fast_path.counts import FlowCounts
from egressd.netd.kernel.fast_path.maps import Maps
from egressd.planner.fast_networks import NO_PLACE, NetworkPlace
from egressd.planner.fast_path import Place

_NO_VALUE: Final = bytes(elements.PLACE.size)


class Moves(NamedTuple):
    """The part of a change of places that is written into the kernel's maps."""

    gone: Collection[IPv4Network]
    """Networks that go, or get another place."""
    clients: Mapping[str, Place | None]
    """Address -> the client's place, None if it has none."""
    fresh: Mapping[IPv4Network, NetworkPlace]

    def write(self, maps: Maps, counts: FlowCounts) -> None:
        """Write it. Raises OSError.

        Networks that go are first and those that come last, so that no client has the place of a
        network before and after its own, or in between.
        """
        for network in self.gone:
            maps.networks.drop(elements.prefix_key(network))
        for address, where in self.clients.items():
            key = elements.address_key(address)
            if where is None:
                maps.clients.drop(key)
                continue
            if where != NO_PLACE:
                counts.begin(maps, key)
            maps.clients.put(key, elements.place_value(where))
        for network, its_place in self.fresh.items():
            counts.begin(maps, elements.RULE.pack(its_place.rule))
            maps.networks.put(elements.prefix_key(network), elements.network_value(its_place))


class FastPlaces:
    """The places that the kernel's maps have, or get when there are maps again."""

    def __init__(self) -> None:
        self.clients: dict[str, Place] = {}
        """The clients with rules of their own. Those in `networks` that take the slow path have
        `NO_PLACE`."""
        self.networks: dict[IPv4Network, NetworkPlace] = {}
        self._covered = Ranges(())
        """The addresses in `networks`."""

    def __bool__(self) -> bool:
        return bool(self.clients or self.networks)

    def load(self, maps: Maps) -> None:
        """Take over what maps have. Raises OSError."""
        for key in maps.clients:
            value = maps.clients.get(key) or _NO_VALUE
            self.clients[socket.inet_ntoa(key)] = elements.read_place(value)
        for key in maps.networks:
            if its_value := maps.networks.get(key):
                self.networks[elements.read_prefix(key)] = elements.read_network(its_value)
        self._covered = Ranges(map(str, self.networks))

    def carries(self, address: str) -> bool:
        """Return whether a client may take the fast path."""
        if address in self.clients:
            return self.clients[address] != NO_PLACE
        return self._covers(address)

    def change(
        self,
        touched: Collection[str],
        ruled: Collection[str],
        place_of: Callable[[str], Place | None],
        networks: Mapping[IPv4Network, NetworkPlace] | None = None,
    ) -> Moves:
        """Give the clients `touched` the places that `place_of` returns, and return what is to be
        written. `ruled`: all addresses with rules of their own; `networks`: those of CIDR rules if
        they have changed. O(touched), or O(ruled) with `networks`.

        All places are known when this returns, whether or not the kernel then takes them.
        """
        before, examined = self.networks, {*touched}
        if networks is not None:
            self.networks = {**networks}
            self._covered = Ranges(map(str, networks))
            examined.update(
                address
                for address in (*ruled, *self.clients)
                if self.clients.get(address, NO_PLACE) == NO_PLACE
            )
        changed: dict[str, Place | None] = {}
        for address in examined:
            where = place_of(address)
            if where is None and address in ruled and self._covers(address):
                where = NO_PLACE
            if where == self.clients.get(address):
                continue
            changed[address] = where
            if where is None:
                del self.clients[address]
            else:
                self.clients[address] = where
        after = self.networks
        gone = [it for it, where in before.items() if after.get(it) != where]
        fresh = {it: where for it, where in after.items() if before.get(it) != where}
        return Moves(gone, changed, fresh)

    def all(self) -> Moves:
        """Return what is to be written into empty maps."""
        return Moves((), self.clients, self.networks)

    def _covers(self, address: str) -> bool:
        return socket.inet_aton(address) in self._covered

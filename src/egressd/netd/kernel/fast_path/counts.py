"""The counts of known flows, by client and by CIDR rule.

Keys are those of the kernel's maps (`elements`): a client's address has 4 bytes, a rule's number 8.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from operator import add
from typing import Final

from msgspec.structs import astuple

from egressd.model.messages import RuleCount
from egressd.netd.kernel.ebpf import system
from egressd.netd.kernel.fast_path import elements
from egressd.netd.kernel.fast_path.maps import Maps

_NOTHING: Final = bytes(elements.COUNT.size)


class FlowCounts:
    """Counts in the kernel's maps, and those of maps that are gone. Methods raise OSError."""

    def __init__(self) -> None:
        self.maps: Maps | None = None
        """The maps in use (`use`). They are closed in a block of `kept`."""
        self._reading = threading.Lock()
        """The lock held by readers, each in a thread of its own, and while the maps are closed."""
        self._carried: dict[bytes, RuleCount] = {}
        """Counts from maps that are gone, while there are no others."""

    def read(self, keys: Iterable[bytes]) -> dict[bytes, RuleCount]:
        """Return the counts of these keys, those that there are."""
        with self._reading:
            found = {key: self._count_of(key) for key in keys}
        return {key: count for key, count in found.items() if count is not None}

    def use(self, maps: Maps) -> None:
        """Count in these maps from now on, and write there what was counted before, where the next
        netd finds it, too.
        """
        with self._reading:
            self.maps = maps
            for key in list(self._carried):
                value = elements.COUNT.pack(*astuple(self._carried[key]))
                _map_of(maps, len(key)).put_new(key, value)
                del self._carried[key]

    def begin(self, maps: Maps, key: bytes) -> None:
        """Count a key from now on, if it is not counted yet: the classifier adds no keys."""
        _map_of(maps, len(key)).put_new(key, _NOTHING)

    def take_over(self, earlier: dict[bytes, bytes]) -> None:
        """Count on from values of maps that are not used any more."""
        self._carried = {key: _count(value) for key, value in earlier.items()}

    def forget(self, key: bytes) -> None:
        """Drop the count of a key."""
        self._carried.pop(key, None)
        if self.maps is not None:
            _map_of(self.maps, len(key)).drop(key)

    def forget_clients_but(self, known: Collection[bytes]) -> None:
        """Drop the counts of all other clients."""
        self._forget_but(known, elements.ADDRESS_BYTES)

    def forget_rules_but(self, known: Collection[bytes]) -> None:
        """Drop the counts of all other CIDR rules."""
        self._forget_but(known, elements.RULE.size)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep all counts, so that the maps can be closed inside."""
        with self._reading:
            with suppress(OSError):
                found = ((key, self._count_of(key)) for key in self._keys())
                self._carried = {key: it for key, it in found if it and any(astuple(it))}
            yield
            self.maps = None

    def _forget_but(self, known: Collection[bytes], key_bytes: int) -> None:
        found = {key for key in self._carried if len(key) == key_bytes}
        if self.maps is not None:
            found.update(_map_of(self.maps, key_bytes))
        for key in found.difference(known):
            self.forget(key)

    def _keys(self) -> set[bytes]:
        maps = self.maps
        return {*self._carried, *(chain(maps.counts, maps.rule_counts) if maps else ())}

    def _count_of(self, key: bytes) -> RuleCount | None:
        carried = self._carried.get(key)
        value = _map_of(self.maps, len(key)).get(key) if self.maps else None
        if value is None:
            return carried
        counted = _count(value)
        return RuleCount(*map(add, astuple(counted), astuple(carried))) if carried else counted


def _map_of(maps: Maps, key_bytes: int) -> system.Map:
    return maps.counts if key_bytes == elements.ADDRESS_BYTES else maps.rule_counts


def _count(value: bytes) -> RuleCount:
    return RuleCount(*elements.COUNT.unpack(value))

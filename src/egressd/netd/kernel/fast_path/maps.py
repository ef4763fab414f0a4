"""The classifier's maps, new or taken over."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, closing
from typing import Final, NamedTuple, Self

from egressd.netd.kernel import uapi
from egressd.netd.kernel.ebpf import system
from egressd.netd.kernel.fast_path import elements, program
from egressd.planner.fast_networks import NETWORKS_MAX
from egressd.planner.fast_path import WAYS_MAX

_CLIENTS_MAX: Final = 1 << 18
_NETWORKS_MAX: Final = 2 * NETWORKS_MAX
"""More than there are at once: kernels before 6.13 need room to replace a value."""
_SHAPES: Final = {
    "clients": (elements.ADDRESS_BYTES, elements.PLACE.size, _CLIENTS_MAX),
    "networks": (elements.PREFIX.size, elements.NETWORK_BYTES, _NETWORKS_MAX),
    "egresses": (elements.WAY.size, elements.EGRESS_BYTES, WAYS_MAX),
    "counts": (elements.ADDRESS_BYTES, elements.COUNT.size, _CLIENTS_MAX),
    "rule_counts": (elements.RULE.size, elements.COUNT.size, _NETWORKS_MAX),
}
"""Name -> sizes of key and value, and capacity."""
_KINDS: Final = {"networks": uapi.BPF_MAP_TYPE_LPM_TRIE}
"""Name -> ``enum bpf_map_type``, of those that are no hash maps."""
_COUNTS: Final = ("counts", "rule_counts")
_LEASE_SHAPE: Final = {"lease": (len(elements.LEASE_KEY), elements.DEADLINE.size, 1)}


class Maps(NamedTuple):
    """The maps in which the classifier looks up values."""

    clients: system.Map
    networks: system.Map
    egresses: system.Map
    counts: system.Map
    rule_counts: system.Map
    lease: system.Map | None = None
    """The end of the lease, if known flows need one."""

    @property
    def descriptors(self) -> program.MapDescriptors:
        """The descriptors with which the classifier is assembled."""
        return program.MapDescriptors(
            clients=self.clients.descriptor,
            networks=self.networks.descriptor,
            egresses=self.egresses.descriptor,
            counts=self.counts.descriptor,
            rule_counts=self.rule_counts.descriptor,
            lease=self.lease.descriptor if self.lease else None,
        )

    @classmethod
    def make(cls, *, is_gated: bool = False) -> Self:
        """Make empty maps, with one of the lease if `is_gated`. Raises OSError."""
        shapes = _SHAPES | _LEASE_SHAPE if is_gated else _SHAPES
        with ExitStack() as undo:
            made = [undo.enter_context(closing(_made(name, *shapes[name]))) for name in shapes]
            undo.pop_all()
        return cls(*made)

    @classmethod
    def adopt(cls, programs: Iterable[int]) -> Self | None:
        """Take over the maps of attached programs, given by number, if they have our layout.

        Raises OSError.
        """
        for each in programs:
            maps = {one.name: one for one in system.maps_of(each)}
            shapes = {name: (m.key_size, m.value_size, m.room) for name, m in maps.items()}
            if shapes in (_SHAPES, _SHAPES | _LEASE_SHAPE):
                return cls(**maps)
            for one in maps.values():
                one.close()
        return None

    def close(self) -> None:
        """Close all descriptors."""
        for each in self:
            if each is not None:
                each.close()


def counts_of(programs: Iterable[int]) -> dict[bytes, bytes]:
    """Return the counts that attached programs, given by number, keep, by their keys: also those of
    an earlier version, whose maps have another layout. Raises OSError.
    """
    found: dict[bytes, bytes] = {}
    for each in programs:
        for one in system.maps_of(each):
            with closing(one):
                shape = (one.key_size, one.value_size, one.room)
                if one.name in _COUNTS and shape == _SHAPES[one.name]:
                    found |= {key: value for key in one if (value := one.get(key))}
    return found


def _made(name: str, key_size: int, value_size: int, room: int) -> system.Map:
    kind = _KINDS.get(name, uapi.BPF_MAP_TYPE_HASH)
    return system.Map.make(name, key_size=key_size, value_size=value_size, room=room, kind=kind)

"""The classifier's maps, new or taken over."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, closing
from typing import Final, NamedTuple, Self

from egressd.netd.kernel.ebpf import system
from egressd.netd.kernel.fast_path import elements, program

_CLIENTS_MAX: Final = 1 << 18
_EGRESSES_MAX: Final = 1 << 12
_SHAPES: Final = {
    "clients": (elements.ADDRESS_BYTES, elements.PLACE.size, _CLIENTS_MAX),
    "egresses": (elements.MARK_BYTES, elements.EGRESS_BYTES, _EGRESSES_MAX),
    "counts": (elements.ADDRESS_BYTES, elements.COUNT.size, _CLIENTS_MAX),
}
"""Name -> sizes of key and value, and capacity."""


class Maps(NamedTuple):
    """The maps in which the classifier looks up values."""

    clients: system.Map
    egresses: system.Map
    counts: system.Map

    @property
    def descriptors(self) -> program.MapDescriptors:
        """The descriptors with which the classifier is assembled."""
        return program.MapDescriptors(*(each.descriptor for each in self))

    @classmethod
    def make(cls) -> Self:
        """Make empty maps. Raises OSError."""
        with ExitStack() as undo:
            made = [undo.enter_context(closing(_made(name))) for name in _SHAPES]
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
            if shapes == _SHAPES:
                return cls(**maps)
            for one in maps.values():
                one.close()
        return None


def _made(name: str) -> system.Map:
    key_size, value_size, room = _SHAPES[name]
    return system.Map.make(name, key_size=key_size, value_size=value_size, room=room)

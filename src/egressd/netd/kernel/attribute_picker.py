"""A fast extractor of attributes from thousands of netlink messages with the same layout."""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from egressd.netd.kernel import uapi

_ATTRIBUTE = struct.Struct("=HH")  # length, type
_HEADER_MASK: Final = 0xFFFF_FFFF


class _Layout(NamedTuple):
    """The places of the wanted attributes in messages with the same attribute headers."""

    mask: int
    headers: int
    places: tuple[slice, ...]


class AttributePicker:
    """Finds attributes by their paths: the type of each, preceded by the types it is nested in.

    Their places are learned from one message. As long as all other messages of the same length have
    the same headers in the same places, which one comparison shows, each takes half a microsecond;
    `netlink.attributes` takes five to ten.
    """

    def __init__(self, start: int, *paths: tuple[int, ...]) -> None:
        """`start`: the number of bytes before the first attribute."""
        self._start = start
        self._paths = paths
        self._layouts: dict[int, _Layout] = {}

    def pick(self, data: bytes) -> list[bytes]:
        """Return the attribute at each path; empty if there is none."""
        layout = self._layouts.get(len(data))
        if layout is None or int.from_bytes(data, "little") & layout.mask != layout.headers:
            layout = self._layouts[len(data)] = self._learn(data)
        return [data[place] for place in layout.places]

    def _learn(self, data: bytes) -> _Layout:
        places = dict.fromkeys(self._paths, slice(0))
        mask = 0
        levels: list[tuple[tuple[int, ...], int, int]] = [((), self._start, len(data))]
        while levels:
            outer, at, end = levels.pop()
            while at + _ATTRIBUTE.size <= end:
                length, kind = _ATTRIBUTE.unpack_from(data, at)
                if length < _ATTRIBUTE.size:
                    break
                mask |= _HEADER_MASK << 8 * at
                path = (*outer, kind & uapi.NLA_TYPE_MASK)
                inside = at + _ATTRIBUTE.size, at + length
                if path in places:
                    places[path] = slice(*inside)
                elif any(wanted[: len(path)] == path for wanted in self._paths):
                    levels.append((path, *inside))
                at += (length + 3) & ~3
        headers = int.from_bytes(data, "little") & mask
        return _Layout(mask, headers, tuple(places.values()))

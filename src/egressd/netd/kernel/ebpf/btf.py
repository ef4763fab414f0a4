"""A reader of BTF, the kernel's description of its own types (``bpf/btf.rst`` in its
documentation).

Of its more than 100,000 types only the requested ones are examined.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from egressd.netd.kernel import uapi

# struct btf_header: magic, version, flags, length, then offsets and sizes of types and strings
_HEADER: Final = struct.Struct("=HBBIIIII")
_TYPE: Final = struct.Struct("=III")  # struct btf_type: name, kind and parts, size or type
_MEMBER: Final = struct.Struct("=III")  # struct btf_member: name, type, offset in bits
_ARRAY: Final = struct.Struct("=III")  # struct btf_array: type, type of the index, length
_COMPOSITES: Final = (uapi.BTF_KIND_STRUCT, uapi.BTF_KIND_UNION)
_ALIASES: Final = frozenset(
    {
        uapi.BTF_KIND_TYPEDEF,
        uapi.BTF_KIND_VOLATILE,
        uapi.BTF_KIND_CONST,
        uapi.BTF_KIND_RESTRICT,
        uapi.BTF_KIND_TYPE_TAG,
    }
)
_BEHIND: Final = {
    uapi.BTF_KIND_INT: (4, 0),
    uapi.BTF_KIND_ARRAY: (_ARRAY.size, 0),
    uapi.BTF_KIND_STRUCT: (0, _MEMBER.size),
    uapi.BTF_KIND_UNION: (0, _MEMBER.size),
    uapi.BTF_KIND_ENUM: (0, 8),
    uapi.BTF_KIND_FUNC_PROTO: (0, 8),
    uapi.BTF_KIND_VAR: (4, 0),
    uapi.BTF_KIND_DATASEC: (0, 12),
    uapi.BTF_KIND_DECL_TAG: (4, 0),
    uapi.BTF_KIND_ENUM64: (0, 12),
}
"""Kind -> the bytes behind a type: once, and for each of its parts."""
_POINTER_BYTES: Final = 8


class _Type(NamedTuple):
    kind: int
    parts: int
    size: int
    """Size in bytes, or the number of another type."""
    at: int
    """Offset of the data behind the type."""


class Btf:
    """The kernel's types, and those of modules that extend them.

    `data`: the kernel's BTF and a module's, whose numbers and names continue the kernel's. `names`:
    the structures and functions that will be requested. Raises ValueError if the data is not BTF.
    """

    def __init__(self, *data: bytes, names: Collection[str]) -> None:
        types, strings = bytearray(), bytearray()
        for part in data:
            try:
                magic, _, _, length, at, size, strings_at, strings_size = _HEADER.unpack_from(part)
            except struct.error:
                magic = 0
            if magic != uapi.BTF_MAGIC:
                raise ValueError("this is no BTF")
            types += part[length + at : length + at + size]
            strings += part[length + strings_at : length + strings_at + strings_size]
        self._types, self._strings = bytes(types), bytes(strings)
        wanted = {self._strings.find(b"\0%b\0" % name.encode()) + 1: name for name in names}
        self._places = array("I", [0])  # the type of number 0 is void
        self._numbers: dict[tuple[str, int], int] = {}
        for number, (at, name_at, kind) in enumerate(_each(self._types), 1):
            self._places.append(at)
            if name_at and name_at in wanted:
                self._numbers.setdefault((wanted[name_at], kind), number)

    def function(self, name: str) -> int:
        """Return the number of a function's type. Raises KeyError if there is none."""
        return self._numbers[name, uapi.BTF_KIND_FUNC]

    def offset(self, structure: str, *path: str | int) -> int:
        """Return the offset of a field in a structure, in bytes: by names of fields, and indexes of
        arrays.

        The fields of unnamed unions and structures count as the outer one's. Raises KeyError.
        """
        number = self._numbers[structure, uapi.BTF_KIND_STRUCT]
        found = 0
        for step in path:
            offset, number = self._step(number, step)
            found += offset
        return found

    def _step(self, number: int, step: str | int) -> tuple[int, int]:
        """Return the offset of the next step and its type. Raises KeyError."""
        outer = self._type(number)
        if isinstance(step, int) and outer.kind == uapi.BTF_KIND_ARRAY:
            element = _ARRAY.unpack_from(self._types, outer.at)[0]
            return step * self._size(element), element
        if isinstance(step, str) and outer.kind in _COMPOSITES:
            for name_at, member, bits in _MEMBER.iter_unpack(
                self._types[outer.at : outer.at + outer.parts * _MEMBER.size]
            ):
                if self._text(name_at) == step:
                    return bits // 8, member
                if not name_at and self._type(member).kind in _COMPOSITES:
                    try:
                        offset, inner = self._step(member, step)
                    except KeyError:
                        continue
                    return bits // 8 + offset, inner
        raise KeyError(step)

    def _type(self, number: int) -> _Type:
        """Return a type without its aliases and qualifiers."""
        while True:
            at = self._places[number]
            _, info, size = _TYPE.unpack_from(self._types, at)
            if (kind := _kind(info)) not in _ALIASES:
                return _Type(kind, info & 0xFFFF, size, at + _TYPE.size)
            number = size

    def _size(self, number: int) -> int:
        found = self._type(number)
        if found.kind == uapi.BTF_KIND_PTR:
            return _POINTER_BYTES
        if found.kind != uapi.BTF_KIND_ARRAY:
            return found.size
        element, _, length = _ARRAY.unpack_from(self._types, found.at)
        return int(length) * self._size(element)

    def _text(self, at: int) -> str:
        return self._strings[at : self._strings.index(b"\0", at)].decode()


def _each(types: bytes) -> Iterator[tuple[int, int, int]]:
    """Yield the offset of each type, the offset of its name, and its kind."""
    unpack, at, end = _TYPE.unpack_from, 0, len(types)
    while at < end:
        name_at, info, _ = unpack(types, at)
        kind = _kind(info)
        yield at, name_at, kind
        once, each = _BEHIND.get(kind, (0, 0))
        at += _TYPE.size + once + each * (info & 0xFFFF)


def _kind(info: int) -> int:
    return info >> 24 & 0x1F

"""Scalars of a text whose types are uncertain, and their values once a type is known.

``password: 0123`` means four characters, and ``port: "443"`` a number, independent of the types
that YAML or JSON assigns. So a scalar keeps its own text until its field determines the type.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from egressd.formats.fields import Kind, Table

_OFF: Final = frozenset({"", "0", "false", "none", "off", "null", "~"})
_SWITCHES: Final = ("enabled", "enable")


class Scalar(msgspec.Struct, frozen=True):
    """A scalar: its text, and its value in its language: null, a boolean, a number or a text."""

    text: str
    native: Any


def text_of(value: Any) -> str:
    """Return the text of a scalar, or of a text; an empty text for everything else."""
    if isinstance(value, Scalar):
        return "" if value.native is None else value.text
    return value if isinstance(value, str) else ""


def is_absent(value: Any) -> bool:
    """True if a value is null or an empty text."""
    if isinstance(value, Scalar):
        return value.native is None or not value.text
    return value is None or value == ""


def is_off(value: Any) -> bool:
    """True if a value asks for nothing: it is absent, a switch that is off, empty, or an object
    with ``enabled`` or ``enable`` off.
    """
    if isinstance(value, Scalar):
        return value.native is None or value.text.lower() in _OFF
    if isinstance(value, str):
        return value.lower() in _OFF
    if isinstance(value, dict):
        switches = [value[key] for key in _SWITCHES if key in value]
        return all(is_off(v) for v in switches or value.values())
    return not value


def is_same(one: Any, other: Any) -> bool:
    """True if two values have the same text, in any types."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        pairs = zip(one, other, strict=False)
        return len(one) == len(other) and all(is_same(a, b) for a, b in pairs)
    return bool(_said(one) == _said(other))


def _said(value: Any) -> Any:
    if isinstance(value, Scalar):
        return value.text
    return value if isinstance(value, dict | list) else str(value)


def to_json(value: Any, kind: Kind | Table | None) -> Any:
    """Return `value` with its scalars as JSON values: as `kind` reads them, or unchanged without
    one.
    """
    if isinstance(value, Scalar):
        if kind is None or value.native is None:
            return value.native
        return kind.from_text(value.text) if isinstance(kind, Kind) else value.text
    if isinstance(value, str):
        return kind.from_text(value) if isinstance(kind, Kind) else value
    if isinstance(value, dict):
        if isinstance(kind, Table):
            return {key: to_json(item, kind.keys.get(key)) for key, item in value.items()}
        return {key: _inside(item, kind) for key, item in value.items()}
    if isinstance(value, list):
        return [_inside(item, kind) for item in value]
    return value


def _inside(value: Any, kind: Kind | Table | None) -> Any:
    """Return a value inside a list or an object of one kind as `to_json` does; such values are
    texts.
    """
    if isinstance(value, Scalar):
        return value.native if kind is None or value.native is None else value.text
    return value if isinstance(value, str) else to_json(value, kind)

"""Automatic names for imported nodes and lines."""

from __future__ import annotations

from collections.abc import Container, Iterator
from itertools import count


def automatic_names(prefix: str, start: int, in_use: Container[str]) -> Iterator[str]:
    """Yield ``<prefix>_<n>`` for n from `start` up, without the names in use and without end."""
    return (name for n in count(start) if (name := f"{prefix}_{n}") not in in_use)

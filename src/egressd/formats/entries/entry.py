"""The entry of a protocol, and the fields that all protocols have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from egressd.formats.fields import BOOLEAN, HOST, PORT, Kind, Table, choice
from egressd.formats.layers import Values
from egressd.model.faults import Fault

Rule = Callable[[Values], Iterator[Fault]]
Idle = Callable[[Values], Iterator[str]]


@dataclass(frozen=True)
class Entry:
    """A protocol's table, and the rules that look at several fields together.

    A rule yields each fault that it finds. A rule of ``idle`` yields the path of each field that
    has no effect beside the others.
    """

    table: Table
    rules: tuple[Rule, ...] = ()
    idle: tuple[Idle, ...] = ()


SERVER: Final[dict[str, Kind | Table]] = {
    "server": HOST,
    "port": PORT,
    "udp": BOOLEAN,
    "ip-version": choice("ipv4", "ipv6", "dual", "ipv4-prefer", "ipv6-prefer"),
}
TO_SERVER: Final = frozenset({"server", "port"})

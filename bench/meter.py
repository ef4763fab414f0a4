"""CPU time that programs and the kernel's packet threads have used."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def used_s(pids: Iterable[int]) -> float:
    """Return the seconds of CPU time of the processes so far, user and system
    (proc_pid_stat(5)).
    """
    return sum(_ticks(pid) for pid in pids) / _TICKS_PER_S


def packet_threads() -> list[int]:
    """Return the kernel's threads that process packets when a core is overloaded
    (``ksoftirqd/N``).
    """
    found = []
    for file in Path("/proc").glob("[0-9]*/comm"):
        try:
            if file.read_text().startswith("ksoftirqd/"):
                found.append(int(file.parent.name))
        except OSError:
            continue  # the process has ended
    return found


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[11]) + int(fields[12])

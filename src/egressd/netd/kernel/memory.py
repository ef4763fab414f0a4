"""How much memory processes hold."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


def resident(pids: Iterable[int]) -> int:
    """Bytes of memory that the processes hold together; those that are gone hold none.

    Pages that several of them share count once between them (``Pss``, proc_pid_smaps(5));
    a process that may not be looked into counts with its resident size.
    """
    return sum(_resident(Path("/proc") / str(pid)) for pid in pids)


def _resident(process: Path) -> int:
    try:
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return int((process / "statm").read_text().split()[1]) * _PAGE
    except OSError:
        return 0

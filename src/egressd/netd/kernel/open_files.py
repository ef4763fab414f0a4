"""How many files a process has open, and how many it may."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_LIMIT: Final = "Max open files"


def limit(pid: int) -> int:
    """How many it may have open (its soft limit). Raises OSError when it is gone.

    It is read (proc_pid_limits(5)), since prlimit(2) tells it of another user's process only to
    who has CAP_SYS_RESOURCE.
    """
    limits = (Path("/proc") / f"{pid}" / "limits").read_text()
    return int(limits.partition(_LIMIT)[2].split()[0])


def count(pid: int, enough: int) -> int:
    """How many it has open; any number below `enough` where there are fewer than that.

    Raises OSError when it is gone. To list 100,000 takes the kernel 60 ms, so it is done only where
    there may be enough.
    """
    process = Path(f"/proc/{pid}")
    if size := (process / "fd").stat().st_size:
        return size  # since Linux 6.2 (proc_readfd_count)
    for line in (process / "status").read_text().splitlines():
        # The size of its table, which only grows (proc_pid_status(5)).
        if line.startswith("FDSize:") and int(line.split()[1]) < enough:
            return 0
    return sum(1 for _ in (process / "fd").iterdir())

"""How many files a process has open, and how many it may."""

from __future__ import annotations

import resource
from pathlib import Path


def limit(pid: int) -> int:
    """How many it may have open. Raises OSError when it is gone, or may not be looked into."""
    soft, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    return soft


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

"""The file that a worker locks while it lives; it holds ``<pid> <start time>``."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from egressd.netd.system.processes import start_time


def lock_path(socket_path: Path) -> Path:
    """Return the lock file of the worker that listens on that socket."""
    return socket_path.with_suffix(".lock")


def claim(path: Path) -> None:
    """Become the worker of that socket, or exit if another one lives. The lock is kept open."""
    lock = os.open(lock_path(path), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another worker serves {path}")
    os.ftruncate(lock, 0)
    os.pwrite(lock, f"{os.getpid()} {start_time(os.getpid())}\n".encode(), 0)

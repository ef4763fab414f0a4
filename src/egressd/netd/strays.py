"""Processes that no netd can know of: the run directory they were started from is another now, or
was cleared.

They go on serving: a worker a proxy service for everybody, a line's daemon the line's interface.
Only one netd works in a network namespace, so all of its kind there are its, or strays.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_END_MS: Final = 5000
"""For a process that was sent SIGKILL to be gone, and its ports with it."""


def end(is_stray: Callable[[Path], bool]) -> list[int]:
    """End the processes of this network namespace that `is_stray` says are strays; their pids.

    It is asked with the process' folder in /proc, which may be gone, and once more when the process
    can be no other any more.
    """
    return [pid for pid in _found(is_stray) if _kill(pid, is_stray)]


def _found(is_stray: Callable[[Path], bool]) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and is_stray(entry) and _is_here(entry):
            yield int(entry.name)


def _is_here(process: Path) -> bool:
    try:
        return (process / "ns/net").stat().st_ino == Path("/proc/self/ns/net").stat().st_ino
    except PermissionError:
        # netd's unit lets it see no other user's namespaces (ptrace(2)), and has its own cgroup.
        with suppress(OSError):
            return (process / "cgroup").read_bytes() == Path("/proc/self/cgroup").read_bytes()
    except OSError:
        pass
    return False


def _kill(pid: int, is_stray: Callable[[Path], bool]) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_stray(Path(f"/proc/{pid}")):  # asked anew: the pid may be another's by now
            return False
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll(_END_MS)
    except OSError:
        return False
    finally:
        os.close(pidfd)
    return True

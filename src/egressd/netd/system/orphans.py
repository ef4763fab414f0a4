"""Strays: processes of an earlier netd that a new netd cannot know, because the run directory has
changed since they started, or was cleared.

They keep running: a worker keeps serving a proxy service without limits, and a line's daemon keeps
the line's interface. Only one netd works in a network namespace, so every process of such a kind
there either belongs to it or is a stray.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

_END_MS: Final = 5000
"""Milliseconds that a process has after SIGKILL to end and free its ports."""
_SELF: Final = Path("/proc/self")
_OF_NAMESPACE: Final = "net/dev"


def end(is_stray: Callable[[Path], bool]) -> list[int]:
    """End the processes of this network namespace for which `is_stray` is true; return their pids.

    `is_stray` gets the folder of the process in /proc, which may be gone. It is called once more
    when a pidfd is open, so that the pid cannot pass to another process.
    """
    return [pid for pid in _found(is_stray) if _kill(pid, is_stray)]


def _found(is_stray: Callable[[Path], bool]) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and is_stray(entry) and _is_here(entry):
            yield int(entry.name)


def _is_here(process: Path) -> bool:
    # Each namespace has its own files there (proc_pid_net(5)). To see them takes no right to trace
    # the process (ptrace(2)), as to see ns/net does; netd's unit lacks that right.
    try:
        return (process / _OF_NAMESPACE).stat().st_ino == (_SELF / _OF_NAMESPACE).stat().st_ino
    except OSError:
        return False


def _kill(pid: int, is_stray: Callable[[Path], bool]) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_stray(Path(f"/proc/{pid}")):  # the pid may have passed to another process
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

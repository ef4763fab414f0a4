"""Workers that no netd can know of: their run directory is another now, or was cleared.

They go on serving, and a proxy service among them for everybody. Only one netd works in a network
namespace, so all workers there are its, or strays.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from egressd.netd.engine import launch
from egressd.netd.engine.launch import WORKER

_END_MS: Final = 5000
"""For a process that was sent SIGKILL to be gone, and its ports with it."""


def end(but_of: Path | None = None) -> list[int]:
    """End the workers of this network namespace, but those that hold a lock in the folder
    `but_of`; their pids.
    """
    return [pid for pid, path in _found() if not _is_held(path, pid, but_of) and _kill(pid)]


def _is_held(path: Path, pid: int, folder: Path | None) -> bool:
    if path.parent != folder or (living := launch.holder(path)) is None:
        return False
    os.close(living[1])
    return living[0] == pid


def _found() -> Iterator[tuple[int, Path]]:
    """The workers here: pid, and the socket that each was told to listen on."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (path := _socket_of(entry)) and _is_here(entry):
            yield int(entry.name), path


def _socket_of(process: Path) -> Path | None:
    """Of a worker, as `launch.spawn` starts it; None of any other process."""
    try:
        arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    if arguments[1 : len(WORKER) + 1] != [*WORKER] or "--socket" not in arguments[:-1]:
        return None
    return Path(arguments[arguments.index("--socket") + 1])


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


def _kill(pid: int) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if _socket_of(Path(f"/proc/{pid}")) is None:  # read anew: the pid may be another's by now
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

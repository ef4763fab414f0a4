"""Processes that outlive netd: start them detached, and recognize them despite reused pids."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from egressd.model.wording import Sentence, say

_ENVIRONMENT: Final = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
_CREDENTIALS: Final = struct.Struct("3i")  # struct ucred: pid, uid, gid (unix(7), SO_PEERCRED)


def spawn(
    argv: Sequence[str],
    environment: Mapping[str, str],
    output: Path,
    standard_input: int | None = None,
) -> int:
    """Start the program at the path ``argv[0]`` and return its pid. Raises OSError.

    It runs in a session of its own, reads from the descriptor `standard_input` or from nothing, and
    its output goes to the file `output`. Its environment is `environment`, a ``PATH`` and a
    ``LANG``.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    nothing = (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
    # posix_spawn and not subprocess: no Python object may wait for the child or end it.
    return os.posix_spawn(
        argv[0],
        list(argv),
        {**_ENVIRONMENT, **environment},
        file_actions=[
            nothing if standard_input is None else (os.POSIX_SPAWN_DUP2, standard_input, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(output), flags, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
        setsigmask=(),
        setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
    )


def start_time(pid: int) -> int:
    """Return the start time of process `pid`, in clock ticks since boot (proc_pid_stat(5), field
    22). It distinguishes the process from a later one with the same pid. Raises OSError if there is
    none.
    """
    stat = Path(f"/proc/{pid}/stat").read_text()
    # Field 2, the program's name, may hold any character; it ends at the last parenthesis.
    return int(stat.rpartition(")")[2].split()[19])


def open_same(pid: int, started: int) -> int | None:
    """Return a pidfd (pidfd_open(2)) of `pid`, or None if it is not the process that started at
    `started`. Raises OSError when there are too many descriptors.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    # Read after the pidfd is open: the start time is then certain to be of the pidfd's process.
    with suppress(OSError):
        if start_time(pid) == started:
            return pidfd
    os.close(pidfd)
    return None


def how_it_ended(pidfd: int) -> Sentence:
    """Return a sentence about the end of a process. The exit status of a process that an earlier
    netd started is unknown, since only its parent could read it.
    """
    try:
        result = os.waitid(os.P_PIDFD, pidfd, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        result = None
    if result is None:
        return say("process-ended")
    if result.si_code == os.CLD_EXITED:
        return say("process-ended-with", status=result.si_status)
    return say("process-killed", signal=signal.Signals(result.si_status).name)


def peer_of(writer: asyncio.StreamWriter) -> tuple[int, int]:
    """Return the pid and the user id of the process at the other end of a Unix socket."""
    connection: socket.socket = writer.get_extra_info("socket")
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(raw)
    return pid, uid

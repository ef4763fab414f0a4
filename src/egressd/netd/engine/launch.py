"""Worker processes on the machine: starting one, finding one, and the reason of a crash.

A worker of socket ``X.sock`` keeps ``X.lock`` locked and writes its process id there, and its
standard error to ``X.log``. All three lie in a folder that only root can enter.
"""

from __future__ import annotations

import fcntl
import os
import re
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

import msgspec

from egressd.netd.engine.lock import lock_path
from egressd.netd.system import processes
from egressd.planner.bounds import DESCRIPTORS_MAX

WORKER: Final = ("-I", "-m", "egressd.netd.engine.worker")
"""The start of a worker's command line, after the interpreter."""
_FRUGAL: Final = {"GOGC": "50"}
"""Go settings of a trial worker. The heap may grow by half between collections, not double: 68
against 81 MB after 1,000 delays. Workers that serve clients do not get them: 1,000 idle targets
take as much without them, and connections are slower with them."""
_INHERITED: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR", "GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG")
"""Environment variables that an administrator may set for OpenSSL and the Go runtime."""

_LOCK_READS: Final = 100
"""Milliseconds that a starting worker has to write into the file it locked."""

_LAST_WORDS: Final = re.compile(r"^(?:panic|fatal error|\w*Error)\b.*", re.MULTILINE)
_LOG_TAIL_BYTES: Final = 65_536


class Account(msgspec.Struct, frozen=True):
    """The user that workers run as, and the limits of each worker."""

    uid: int
    gid: int
    descriptors: int = DESCRIPTORS_MAX
    """Number of open files, up to the limit of the process that starts it."""
    memory: int = 0
    """Bytes below which the Go runtime stays if it can, by collecting garbage more often (it is a
    soft limit: ``GOMEMLIMIT``); 0 sets none."""
    memory_max: int = 0
    """Bytes at which the kernel ends a worker, if systemd runs netd."""


def log_path(socket_path: Path) -> Path:
    """Return the path of a worker's standard error."""
    return socket_path.with_suffix(".log")


def remove_files(socket_path: Path) -> None:
    """Remove the files of a worker that has ended; do nothing if one lives. A file that cannot be
    removed does no harm.
    """
    with suppress(OSError), lock_path(socket_path).open(encoding="ascii") as lock:
        if _is_locked(lock):
            return
    for path in (socket_path, log_path(socket_path), lock_path(socket_path)):
        with suppress(OSError):
            path.unlink()


def holder(path: Path) -> tuple[int, int] | None:
    """Return pid and pidfd of the worker that holds the lock of `path`, or None if there is
    none.
    """
    for _ in range(_LOCK_READS):
        try:
            with lock_path(path).open(encoding="ascii") as file:
                if not _is_locked(file):
                    return None
                words = file.read().split()
        except FileNotFoundError:
            return None
        if len(words) == 2:
            pid, started = map(int, words)
            pidfd = processes.open_same(pid, started)
            return None if pidfd is None else (pid, pidfd)
        time.sleep(0.001)  # it has locked the file but not yet written its pid
    return None


def is_worker(process: Path) -> bool:
    """Return whether the process of that folder in /proc is a worker."""
    return _socket_of(process) is not None


def is_stray(folder: Path, process: Path) -> bool:
    """Return whether the process is a worker that holds no lock in `folder`."""
    path = _socket_of(process)
    return path is not None and not (path.parent == folder and _holds(path, int(process.name)))


def _holds(path: Path, pid: int) -> bool:
    if (living := holder(path)) is None:
        return False
    os.close(living[1])
    return living[0] == pid


def _socket_of(process: Path) -> Path | None:
    """Return the socket in a worker's command line; None for any other process."""
    try:
        arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return None
    if arguments[1 : len(WORKER) + 1] != [*WORKER] or "--socket" not in arguments[:-1]:
        return None
    return Path(arguments[arguments.index("--socket") + 1])


def _is_locked(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def spawn(path: Path, account: Account, *, trial: bool) -> int:
    """Start the process, in a session of its own, with its output in a file; return its pid."""
    argv = [sys.executable, *WORKER, "--socket", str(path)]
    argv += ["--uid", str(account.uid), "--gid", str(account.gid)]
    argv += ["--descriptors", str(account.descriptors)]
    argv += ["--trial"] if trial else []
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    environment = {"GOMEMLIMIT": str(account.memory)} if account.memory else {}
    environment |= (_FRUGAL if trial else {}) | inherited
    return processes.spawn(argv, environment, log_path(path))


def last_words(path: Path) -> str:
    """Return the line of a worker's log that says why it crashed, or an empty string."""
    try:
        with log_path(path).open("rb") as file:
            file.seek(-min(_LOG_TAIL_BYTES, file.seek(0, os.SEEK_END)), os.SEEK_END)
            tail = file.read().decode(errors="replace")
    except OSError:
        return ""
    found = _LAST_WORDS.search(tail)
    return found[0] if found else ""

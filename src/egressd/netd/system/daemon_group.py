"""A unit: a daemon with all its children, in a folder and a mount namespace of its own.

The folder (mode 0700) holds the daemon's files, its output (``log``) and its record
(``unit.json``). In the unit, the folder is mounted onto itself, also for its children, detached or
not. That mount identifies all processes of a unit, however netd or the daemon ended. Processes are
only signalled through a pidfd (pidfd_open(2)).
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import structlog

from egressd.model.wording import NONE
from egressd.netd.system import processes
from egressd.netd.system.files import write_private
from egressd.netd.system.processes import how_it_ended, start_time

log = structlog.get_logger()

LOG: Final = "log"
_RECORD: Final = "unit.json"

_POLITE_S: Final = 1.0
"""Seconds that a daemon has to end its session with the server."""
_KILL_S: Final = 2.0
_KILL_ROUNDS: Final = 5
"""Number of searches for processes to kill. A process may fork while the others are killed."""

_LOG_MAX: Final = 1 << 20
"""Bytes of a log above which it is emptied."""
_READ_MAX: Final = 1 << 16
"""Bytes of a log that are read at once. A server decides how long a log becomes, and a search in
all of it would delay netd.
"""
_LOOK_S: Final = 2.0
"""Seconds between two checks of the logs' sizes. The folder lies in memory, and the sender of
packets decides how much a daemon logs. The kernel's limit (RLIMIT_FSIZE) would end the daemon.
"""

_MARK: Final = b"EGRESSD_UNIT"
"""The environment variable of a unit's processes that has the folder. It identifies them when the
folder is gone."""

_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    started: int
    note: dict[str, Any]


class DaemonGroup:
    """A unit that runs, or has just ended. `start` and `find` make it.

    ``on_end`` is called once, after its leader has ended; ``how`` then is a sentence about that.
    """

    def __init__(self, folder: Path, pid: int, pidfd: int, note: dict[str, Any]) -> None:
        self.folder = folder
        self.pid = pid
        self.note = note
        """The caller's data, kept in the record."""
        self.how = NONE
        self.on_end: Callable[[], None] = lambda: None
        self._pidfd = pidfd
        self._gone = asyncio.Event()
        asyncio.get_running_loop().add_reader(pidfd, self._exited)
        self._empty_logs()

    # --- Making one. ------------------------------------------------------------------------

    @classmethod
    def start(
        cls,
        folder: Path,
        argv: Sequence[str],
        *,
        covers: Mapping[str, str],
        environment: Mapping[str, str] | None = None,
        note: dict[str, Any],
    ) -> Self:
        """Run `argv` in `folder`, which `prepare` made. Raises OSError.

        `covers` maps folders in `folder` to system folders, over which they are mounted for the
        unit. Missing folders are made on both sides.
        """
        for inner, outer in covers.items():
            (folder / inner).mkdir(mode=0o700, exist_ok=True)
            Path(outer).mkdir(mode=0o755, parents=True, exist_ok=True)
        mounts = [f"mount --bind {shlex.quote(i)} {shlex.quote(o)}" for i, o in covers.items()]
        steps = [
            # Without its record, no later netd would find it: it does not begin before that is
            # written, nor if this process dies first.
            "read -r begin",
            "exec < /dev/null",
            "umask 077",
            'mount --bind "$0" "$0"',
            'cd "$0"',
            *mounts,
            # The daemons' long messages, with text from servers, must not reach the system log.
            "{ [ ! -e /dev/log ] || mount --bind /dev/null /dev/log; }",
            'exec "$@"',
        ]
        # The system's mounts and unmounts propagate to the unit, which would otherwise keep old
        # ones in use. Its own do not propagate back.
        shell = ["/usr/bin/unshare", "--mount", "--propagation", "slave", "/bin/sh", "-c"]
        gate, opener = os.pipe()
        try:
            pid = processes.spawn(
                [*shell, " && ".join(steps), str(folder), *argv],
                {**(environment or {}), _MARK.decode(): str(folder)},
                folder / LOG,
                gate,
            )
        except BaseException:
            os.close(opener)
            raise
        finally:
            os.close(gate)
        with open(opener, "wb", buffering=0) as begin:
            pidfd = os.pidfd_open(pid)
            try:
                record = _Record(pid=pid, started=start_time(pid), note=note)
                write_private(folder / _RECORD, msgspec.json.encode(record))
            except BaseException:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
                os.close(pidfd)
                raise
            with suppress(BrokenPipeError):  # it has ended, which is noticed like any other end
                begin.write(b"\n")
        return cls(folder, pid, pidfd, note)

    @classmethod
    async def find(cls, folder: Path) -> Self | None:
        """Return the unit that runs in `folder`. Processes left from a dead one are killed."""
        with suppress(OSError, msgspec.DecodeError):
            record = msgspec.json.decode((folder / _RECORD).read_bytes(), type=_Record)
            pidfd = processes.open_same(record.pid, record.started)
            if pidfd is not None:
                with suppress(OSError):
                    if _is_member(record.pid, folder):
                        return cls(folder, record.pid, pidfd, record.note)
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)  # it has not begun yet
                os.close(pidfd)
        await kill_all(folder)
        return None

    # --- Its life. --------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """True if its leader has ended."""
        return self._gone.is_set()

    def read(self, name: str) -> str:
        """Return the last 64 KiB of a file that the daemon writes; "" if there is none."""
        try:
            with (self.folder / name).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - _READ_MAX, 0))
                return file.read(_READ_MAX).decode(errors="replace")
        except OSError:
            return ""

    def _empty_logs(self) -> None:
        """Empty files that have become large, now and regularly; daemons append to them."""
        with suppress(OSError), os.scandir(self.folder) as found:
            for entry in found:
                if entry.is_file(follow_symlinks=False) and entry.stat().st_size > _LOG_MAX:
                    os.truncate(entry, 0)
        loop = asyncio.get_running_loop()
        self._looking = loop.call_later(_LOOK_S, self._empty_logs)

    def _exited(self) -> None:
        self._looking.cancel()
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self.how = how_it_ended(self._pidfd)
        os.close(self._pidfd)
        self._gone.set()
        self.on_end()

    # --- Its end. ---------------------------------------------------------------------------

    async def end(self, *, polite: bool) -> None:
        """End all its processes. May be called again.

        If `polite`, the leader gets SIGTERM first, so that it can end its session: one that the
        server still holds often blocks the next one.
        """
        if polite and not self.is_over:
            pidfds = [fd for pid in members(self.folder) if (fd := _open(pid)) is not None]
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGTERM)
            await _exits(pidfds, _POLITE_S)
        if not self.is_over:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            with suppress(TimeoutError):
                async with asyncio.timeout(_KILL_S):
                    await self._gone.wait()
        await kill_all(self.folder)

    def release(self) -> None:
        """Leave the unit running for a later netd."""
        if not self.is_over:
            self._looking.cancel()
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._gone.set()


def remove(folder: Path) -> None:
    """Remove the folder of an ended unit, if it exists."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def prepare(folder: Path, files: Mapping[str, str]) -> None:
    """Make `folder` again, with `files` in it, for root alone. Raises OSError."""
    remove(folder)
    folder.mkdir(mode=0o700, parents=True)
    for name, content in files.items():
        write_private(folder / name, content.encode())


def is_recorded(folder: Path) -> bool:
    """Return True if `DaemonGroup.find` may find a unit there, or processes left from one."""
    return (folder / _RECORD).exists()


def folder_of(process: Path) -> Path | None:
    """Return the folder of the unit that a process was started for, from the process' folder in
    /proc; None if it belongs to no unit, or is gone.
    """
    try:
        environment = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    named = (value for name, _, value in (v.partition(b"=") for v in environment) if name == _MARK)
    return next((Path(os.fsdecode(value)) for value in named), None)


# --- The processes of a unit. ---------------------------------------------------------------


def members(folder: Path) -> set[int]:
    """Return the processes for which `folder` is mounted onto itself: those of its unit."""
    found = set()
    known: dict[str, bool] = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        with suppress(OSError):
            namespace = os.readlink(f"/proc/{pid}/ns/mnt")  # noqa: PTH115 (no file there)
            if namespace not in known:
                known[namespace] = _is_member(pid, folder)
            if known[namespace]:
                found.add(pid)
    return found


def _is_member(pid: int, folder: Path) -> bool:
    """Return True if `pid` has the folder's mount. Raises OSError if there is no such process."""
    wanted = os.fsencode(folder.resolve())
    # As bytes: other programs' mounts may have any name.
    for line in Path(f"/proc/{pid}/mountinfo").read_bytes().splitlines():
        # Field 5 is the mount point, with white space as \ooo (proc_pid_mountinfo(5)).
        point = _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), line.split(b" ")[4])
        if point == wanted:
            return True
    return False


async def kill_all(folder: Path) -> None:
    """Kill the remaining processes of the unit of `folder`, and wait until they are gone."""
    for _ in range(_KILL_ROUNDS):
        pidfds = []
        for pid in members(folder):
            pidfd = _open(pid)
            if pidfd is None:
                continue
            pidfds.append(pidfd)
            with suppress(OSError):
                if _is_member(pid, folder):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        if not pidfds:
            return
        await _exits(pidfds, _KILL_S)
    log.error("cannot kill the processes of a daemon", folder=str(folder))


def _open(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


async def _exits(pidfds: Iterable[int], timeout_s: float) -> None:
    """Wait until the processes have ended, or the time is up. The descriptors are closed."""
    loop = asyncio.get_running_loop()
    waiting: dict[int, asyncio.Future[None]] = {}
    for pidfd in pidfds:
        ended: asyncio.Future[None] = loop.create_future()
        loop.add_reader(pidfd, _settle, ended)
        waiting[pidfd] = ended
    try:
        if waiting:
            await asyncio.wait(waiting.values(), timeout=timeout_s)
    finally:
        for pidfd in waiting:
            loop.remove_reader(pidfd)
            os.close(pidfd)


def _settle(ended: asyncio.Future[None]) -> None:
    if not ended.done():
        ended.set_result(None)

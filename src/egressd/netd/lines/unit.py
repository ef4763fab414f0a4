"""A unit: a daemon with all that it starts, in a folder and a mount namespace of its own.

The folder (mode 0700) holds the daemon's files, its output (``log``) and who it is
(``unit.json``). The unit sees the folder mounted onto itself, and so does whatever it starts,
detached or not: by that mount all processes of a unit are found, however netd or the daemon
ended. Processes are only ever signalled through a pidfd (pidfd_open(2)).
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

from egressd.netd import processes
from egressd.netd.files import write_private
from egressd.netd.processes import how_it_ended, start_time

log = structlog.get_logger()

LOG: Final = "log"
_RECORD: Final = "unit.json"

_POLITE_S: Final = 1.0
"""How long a daemon has to take its leave of the server."""
_KILL_S: Final = 2.0
_KILL_ROUNDS: Final = 5
"""A process may fork while the others are killed; then it is looked for again."""

_LOG_MAX: Final = 1 << 20
"""Bytes of a log after which it is emptied."""
_READ_MAX: Final = 1 << 16
"""Bytes of a log that are read at once: how many there are is up to a server, and netd has other
things to do than to look for sentences in all of them."""
_LOOK_S: Final = 2.0
"""How often that is looked at: the folder lies in memory, and how much a daemon logs is up to who
sends it packets. A limit of the kernel's (RLIMIT_FSIZE) would end it."""

_MARK: Final = b"EGRESSD_UNIT"
"""The variable that names the folder in the environment of a unit's processes: it is known by that
when the folder is gone."""

_ESCAPED: Final = re.compile(rb"\\([0-7]{3})")


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    pid: int
    started: int
    note: dict[str, Any]


class Unit:
    """A unit that runs, or has just ended. Made by `start` or `find`.

    ``on_end`` is called once, when its leader has ended; ``how`` then says how.
    """

    def __init__(self, folder: Path, pid: int, pidfd: int, note: dict[str, Any]) -> None:
        self.folder = folder
        self.pid = pid
        self.note = note
        """What the one who started it wanted remembered."""
        self.how = ""
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

        `covers` maps folders in `folder` to those of the system that the unit is to see them in
        place of; missing ones are made on both sides.
        """
        for inner, outer in covers.items():
            (folder / inner).mkdir(mode=0o700, exist_ok=True)
            Path(outer).mkdir(mode=0o755, parents=True, exist_ok=True)
        mounts = [f"mount --bind {shlex.quote(i)} {shlex.quote(o)}" for i, o in covers.items()]
        steps = [
            "umask 077",
            'mount --bind "$0" "$0"',
            'cd "$0"',
            *mounts,
            # What daemons say at length, in the words of servers too, is not the system log's.
            "{ [ ! -e /dev/log ] || mount --bind /dev/null /dev/log; }",
            'exec "$@"',
        ]
        # Mounts of the system go on reaching the unit, or it would hold on to them; its own
        # stay with it.
        shell = ["/usr/bin/unshare", "--mount", "--propagation", "slave", "/bin/sh", "-c"]
        pid = processes.spawn(
            [*shell, " && ".join(steps), str(folder), *argv],
            {**(environment or {}), _MARK.decode(): str(folder)},
            folder / LOG,
        )
        pidfd = os.pidfd_open(pid)
        try:
            record = _Record(pid=pid, started=start_time(pid), note=note)
            write_private(folder / _RECORD, msgspec.json.encode(record))
        except BaseException:
            # No later netd would find it.
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            os.waitid(os.P_PIDFD, pidfd, os.WEXITED)
            os.close(pidfd)
            raise
        return cls(folder, pid, pidfd, note)

    @classmethod
    async def find(cls, folder: Path) -> Self | None:
        """The unit that lives in `folder`. What is left of a dead one is killed."""
        with suppress(OSError, msgspec.DecodeError):
            record = msgspec.json.decode((folder / _RECORD).read_bytes(), type=_Record)
            pidfd = processes.open_same(record.pid, record.started)
            if pidfd is not None:
                with suppress(OSError):
                    if _is_member(record.pid, folder):
                        return cls(folder, record.pid, pidfd, record.note)
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)  # it was only about to begin
                os.close(pidfd)
        await kill_all(folder)
        return None

    # --- Its life. --------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether its leader has ended."""
        return self._gone.is_set()

    def read(self, name: str) -> str:
        """The last 64 KiB of a file that the daemon writes; "" if there is none."""
        try:
            with (self.folder / name).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - _READ_MAX, 0))
                return file.read(_READ_MAX).decode(errors="replace")
        except OSError:
            return ""

    def _empty_logs(self) -> None:
        """Empty files that have become large, now and from now on; daemons append to them."""
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
        """End every process of it; may be called again.

        When `polite`, the leader is asked first, so that it can tell the server: a session that
        the server believes alive often stands in the way of the next one.
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
        """Leave it running, for a later netd to find."""
        if not self.is_over:
            self._looking.cancel()
            asyncio.get_running_loop().remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._gone.set()


def remove(folder: Path) -> None:
    """Remove a folder whose unit has ended, if it is there."""
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)


def prepare(folder: Path, files: Mapping[str, str]) -> None:
    """Make `folder` anew, with `files` in it: for root alone. Raises OSError."""
    remove(folder)
    folder.mkdir(mode=0o700, parents=True)
    for name, content in files.items():
        write_private(folder / name, content.encode())


def is_recorded(folder: Path) -> bool:
    """Whether `Unit.find` may find a unit there, or what is left of one."""
    return (folder / _RECORD).exists()


def folder_of(process: Path) -> Path | None:
    """The folder of the unit that a process was started for, by the process' folder in /proc; None
    of one that is of no unit, or is gone."""
    try:
        environment = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return None
    named = (value for name, _, value in (v.partition(b"=") for v in environment) if name == _MARK)
    return next((Path(os.fsdecode(value)) for value in named), None)


# --- The processes of a unit. ---------------------------------------------------------------


def members(folder: Path) -> set[int]:
    """The processes that see `folder` mounted onto itself: those of its unit."""
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
    """Whether `pid` has the folder's mount. Raises OSError when there is no such process."""
    wanted = os.fsencode(folder.resolve())
    # As bytes: others' mounts may have any name.
    for line in Path(f"/proc/{pid}/mountinfo").read_bytes().splitlines():
        # Field 5 is the mount point, with white space as \ooo (proc_pid_mountinfo(5)).
        point = _ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), line.split(b" ")[4])
        if point == wanted:
            return True
    return False


async def kill_all(folder: Path) -> None:
    """Kill what is left of the unit of `folder`, and wait until it is gone."""
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
    """Wait until the processes have ended, or the time is up; the descriptors are closed."""
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

"""Timed backups: their schedule and the outcome of the last one, in a record that root writes.

A systemd timer, or `supervise` where systemd does not run the service, starts `backup_process` at
each full hour. It makes a backup if one is due. The schedule is in the record alone, so that both
do the same, and nothing has to be computed anew after a boot or an upgrade. The api reads the
record, and reports the outcome.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from egressd.app.hourly import RECORD
from egressd.model.errors import EgressdError, Failed
from egressd.store.files import replace_durably

if TYPE_CHECKING:
    from egressd.app.config import Config

EVERY_H: Final = (1, 24 * 31)
"""Hours between backups: the fewest and the most."""
KEEP: Final = (1, 1000)
"""Backups that are kept: the fewest and the most."""

_HOUR_S: Final = 3600
_SLACK_S: Final = _HOUR_S // 2
"""Seconds that a backup may be early, so that it is made at the nearest full hour, and does not
move by an hour each time."""
LATE_S: Final = _HOUR_S + 300
"""Seconds after which a backup that is not made is reported."""
_REASON_MAX: Final = 500
"""Characters of a reason that are kept at most."""


class BackupSchedule(msgspec.Struct, frozen=True, kw_only=True):
    """The record."""

    every_h: Annotated[int, Meta(ge=EVERY_H[0], le=EVERY_H[1])]
    keep: Annotated[int, Meta(ge=KEEP[0], le=KEEP[1])]
    folder: str
    is_apart: bool
    """True if the folder is on another file system than the data. If it is not any more, a disk is
    not mounted, and backups would fill the wrong one."""
    made_at: Annotated[int, Meta(ge=0)] = 0
    """Unix time of the last backup that succeeded; 0 if none has."""
    reason: str = ""
    """The reason why the last attempt failed; else empty."""

    def is_due(self, now: float) -> bool:
        """True if a backup is to be made. Also if the clock has been set back."""
        return not self.made_at <= now < self._due_at

    def next_at(self, now: float) -> int:
        """Return the full hour at which the next backup is made."""
        return -int(-max(now, self._due_at) // _HOUR_S) * _HOUR_S

    @property
    def _due_at(self) -> int:
        return self.made_at + self.every_h * _HOUR_S - _SLACK_S

    def is_late(self, now: float) -> bool:
        """True if the full hour for a backup has passed, and none was made or has failed."""
        return not self.reason and now > self.next_at(self._due_at) + LATE_S


# --- The record. ---


def read(data: Path) -> BackupSchedule | None:
    """Return the schedule in the data folder; None if no timed backups are set up."""
    try:
        return msgspec.json.decode((data / RECORD).read_bytes(), type=BackupSchedule)
    except (OSError, msgspec.DecodeError):
        return None


def write(data: Path, schedule: BackupSchedule) -> None:
    """Put a schedule into the data folder. Raises Failed."""
    path = data / RECORD
    try:
        replace_durably(path, msgspec.json.encode(schedule))
        path.chmod(0o644)  # root writes it, and the api reads it
    except OSError as error:
        raise Failed(f"write {path}", error.strerror or str(error)) from error


def end(data: Path) -> bool:
    """Remove the schedule. Return False if there was none. Raises Failed."""
    try:
        (data / RECORD).unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise Failed(f"remove {data / RECORD}", error.strerror or str(error)) from error
    return True


@contextmanager
def alone(data: Path) -> Iterator[None]:
    """Wait until no other process makes a timed backup or changes the schedule. Raises Failed."""
    try:
        descriptor = os.open(data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise Failed(f"work on {data}", error.strerror or str(error)) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


# --- Making backups. ---


def make_due(settings: Config, now: float) -> Path | None:
    """Make a backup if one is due, and record the outcome. Return its file. Raises Failed."""
    with alone(settings.data.dir):
        schedule = read(settings.data.dir)
        if schedule is None or not schedule.is_due(now):
            return None
        file, kept = None, schedule
        try:
            file = make(settings, schedule, now)
            kept = msgspec.structs.replace(schedule, made_at=int(now), reason="")
            remove_old(schedule, file)
        except EgressdError as error:
            kept = msgspec.structs.replace(kept, reason=str(error)[:_REASON_MAX])
            raise
        finally:
            write(settings.data.dir, kept)
        return file


def make(settings: Config, schedule: BackupSchedule, now: float) -> Path:
    """Make a backup, and return its file, which is complete and durable. Raises Failed."""
    from egressd.store.database import Database

    folder = Path(schedule.folder)
    if schedule.is_apart and not is_apart(folder, settings.data.dir):
        raise Failed(f"write to {folder}", "the file system that was there is not mounted")
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    file = folder / f"egressd-{_device()}-{stamp}.backup"
    asyncio.run(Database(settings.api_data).backup(file))
    return file


def remove_old(schedule: BackupSchedule, made: Path) -> None:
    """Remove the oldest timed backups of this device beyond the number to keep, but not `made`, and
    what an interrupted one has left. Raises Failed.
    """
    name = re.compile(
        rf"egressd-{re.escape(_device())}-\d{{8}}T\d{{6}}Z\.backup(?P<part>\.\w{{8}})?"
    )
    backups: list[str] = []
    parts: list[str] = []
    try:
        for entry in os.scandir(made.parent):
            found = name.fullmatch(entry.name)
            if found and entry.name != made.name and entry.is_file(follow_symlinks=False):
                (parts if found["part"] else backups).append(entry.name)
        for old in (*parts, *sorted(backups, reverse=True)[schedule.keep - 1 :]):
            (made.parent / old).unlink(missing_ok=True)
    except OSError as error:
        raise Failed(
            f"remove old backups from {made.parent}", error.strerror or str(error)
        ) from error


def is_apart(folder: Path, data: Path) -> bool:
    """True if the folders are on different file systems. Raises Failed."""
    try:
        return folder.stat().st_dev != data.stat().st_dev
    except OSError as error:
        raise Failed(f"write to {folder}", error.strerror or str(error)) from error


def _device() -> str:
    """Return the name of this machine, as a part of a file's name: devices may share a folder."""
    return re.sub(r"[^A-Za-z0-9.-]", "_", socket.gethostname()) or "device"

"""Setting up and ending timed backups, for ``egressd backup --every`` and ``--off``."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from egressd.app import timed_backups
from egressd.app.timed_backups import EVERY_H, KEEP, BackupSchedule
from egressd.model.errors import Failed, Invalid
from egressd.model.times import utc_text
from egressd.store.connection import BadDatabase

if TYPE_CHECKING:
    from egressd.app.config import Config

TIMER: Final = "egressd-timed-backup.timer"
KEEP_DEFAULT: Final = 14
"""Backups that are kept unless --keep is given."""
_UNIT_FOLDERS: Final = (Path("/etc/systemd/system"), Path("/usr/lib/systemd/system"))
_HOURS: Final = {"h": 1, "d": 24}


def hours(text: str) -> int:
    """Return the hours of an interval: ``12h`` or ``7d``. Raises Invalid."""
    least, most = EVERY_H
    found = re.fullmatch(r"([0-9]{1,4})([hd])", text)
    every_h = int(found[1]) * _HOURS[found[2]] if found else 0
    if not least <= every_h <= most:
        raise Invalid(
            f"--every must be {least}h to {most // 24}d, in whole hours or days: 12h or 7d say"
        )
    return every_h


def schedule_of(every: str, keep: int | None, folder: Path | None, data: Path) -> BackupSchedule:
    """Return the schedule that the options ask for. Raises Invalid with every fault."""
    faults = []
    every_h, keep = 0, KEEP_DEFAULT if keep is None else keep
    try:
        every_h = hours(every)
    except Invalid as error:
        faults.append(str(error))
    if not KEEP[0] <= keep <= KEEP[1]:
        faults.append(f"--keep must be {KEEP[0]} to {KEEP[1]}")
    if folder is None:
        faults.append("--to must be given: the folder for the backups")
    elif not folder.is_absolute():
        faults.append(f"--to must be an absolute path; {folder} is not")
    elif not folder.is_dir():
        faults.append(f"--to must be a folder that exists; {folder} is none")
    elif not str(folder).isprintable():
        faults.append("--to must have printable characters only")
    if faults or folder is None:
        raise Invalid(*faults)
    is_apart = timed_backups.is_apart(folder, data)
    return BackupSchedule(every_h=every_h, keep=keep, folder=str(folder), is_apart=is_apart)


def set_up(settings: Config, wanted: BackupSchedule) -> None:
    """Make the first backup, which shows that the folder can be written to, and have the next ones
    made. Raises Invalid or Failed; nothing has changed then.
    """
    import msgspec

    with timed_backups.alone(settings.data.dir):
        now = time.time()
        try:
            file = timed_backups.make(settings, wanted, now)
            timed_backups.remove_old(wanted, file)
        except BadDatabase:
            raise
        except Failed as error:
            raise Invalid(f"--to must be a folder that can be written to: {error.cause}") from error
        made = msgspec.structs.replace(wanted, made_at=int(now))
        timed_backups.write(settings.data.dir, made)
    click.echo(f"backed up to {file}")
    is_timed = has_timer(settings)
    if is_timed:
        systemctl("enable", "--now", TIMER)
    maker = TIMER if is_timed else "`egressd serve`, while it runs,"
    click.echo(f"{maker} makes the next one at {utc_text(made.next_at(now))}")


def switch_off(settings: Config) -> None:
    """End timed backups; the files stay. Raises Failed."""
    with timed_backups.alone(settings.data.dir):
        was_on = timed_backups.end(settings.data.dir)
    if has_timer(settings):
        systemctl("disable", "--now", TIMER)
    click.echo(
        "timed backups are off; those made so far stay" if was_on else "they are off already"
    )


def has_timer(settings: Config) -> bool:
    """True if systemd runs this machine, and has the timer, whose backups are of the default data
    folder.
    """
    from egressd.app.config import Config

    return (
        Path("/run/systemd/system").is_dir()
        and settings.data.dir == Config().data.dir
        and any((folder / TIMER).exists() for folder in _UNIT_FOLDERS)
    )


def systemctl(*arguments: str) -> None:
    """Run systemctl(1). Raises Failed."""
    done = subprocess.run(
        ["systemctl", "--quiet", *arguments],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, errors="replace", check=False,
    )  # fmt: skip
    if done.returncode:
        said = done.stdout.strip().splitlines() or ["it reported no reason"]
        raise Failed(f"run systemctl {' '.join(arguments)}", said[-1])

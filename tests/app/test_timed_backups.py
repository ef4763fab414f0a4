"""Timed backups: when one is due, what it leaves behind, and what is reported about it."""

from __future__ import annotations

import asyncio
import itertools
import os
import select
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from egressd.app import backup_watch, supervise, timed_backups
from egressd.app.backup_watch import BackupWatch
from egressd.app.config import Config, read
from egressd.app.hourly import RECORD, HourlyProgram
from egressd.app.timed_backups import BackupSchedule
from egressd.model.errors import Failed
from egressd.model.wording import Sentence
from egressd.service.judge import Notice
from egressd.store.database import Database
from tests.support.disks import fill, small_disk
from tests.support.needs import Need
from tests.support.netns import eventually

HOUR = 3600
NOON = 1_795_867_200
"""A full hour, as Unix time."""


def schedule(folder: Path, **given: object) -> BackupSchedule:
    usual = BackupSchedule(every_h=24, keep=3, folder=str(folder), is_apart=False, made_at=NOON)
    return msgspec.structs.replace(usual, **given)


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    """A device with an empty database, that does not run."""
    settings = read({"data": {"dir": str(tmp_path / "data")}})

    async def body() -> None:
        database = Database(settings.api_data)
        await database.open()
        await database.close()

    asyncio.run(body())
    return settings


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "backups").mkdir()
    return tmp_path / "backups"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("after_s", "is_due"),
    [
        (0, False),
        (23 * HOUR, False),
        (24 * HOUR - 2000, False),
        (24 * HOUR - 1700, True),
        (24 * HOUR, True),
        (90 * HOUR, True),
        (-1, True),
    ],
)
def test_a_backup_is_due_at_the_nearest_full_hour(after_s: int, is_due: bool) -> None:
    assert schedule(Path("/b")).is_due(NOON + after_s) is is_due


@pytest.mark.parametrize("made_after_s", [0, 4, 600, 1799, 1801, 3599])
def test_the_next_run_is_the_first_full_hour_at_which_it_is_due(made_after_s: int) -> None:
    made = NOON + made_after_s
    found = schedule(Path("/b"), made_at=made, every_h=5)
    hours = itertools.count(NOON + HOUR, HOUR)
    assert found.next_at(made) == next(hour for hour in hours if found.is_due(hour))
    assert abs(found.next_at(made) - made - 5 * HOUR) <= HOUR // 2


def test_a_late_next_run_is_the_next_full_hour() -> None:
    assert schedule(Path("/b")).next_at(NOON + 100 * HOUR + 5) == NOON + 101 * HOUR


def test_backups_are_made_when_due_and_the_oldest_are_removed(
    settings: Config, folder: Path
) -> None:
    (folder / "egressd-other-20200101T000000Z.backup").touch()
    (folder / "device.backup").touch()
    device = timed_backups._device()
    interrupted = folder / f"egressd-{device}-20200101T000000Z.backup.ab_12xyz"
    interrupted.touch()
    (folder / f"egressd-{device}-20200102T000000Z.backup").mkdir()
    others = {*names(folder)} - {interrupted.name}
    timed_backups.write(settings.data.dir, schedule(folder))
    made = []
    for day in range(1, 6):
        now = NOON + day * 24 * HOUR
        file = timed_backups.make_due(settings, now)
        assert file is not None
        assert file.stat().st_mode & 0o777 == 0o600
        made.append(file.name)
        assert timed_backups.make_due(settings, now + 60) is None
    assert {*names(folder)} == {*made[-3:], *others}
    found = timed_backups.read(settings.data.dir)
    assert found is not None
    assert found.made_at == NOON + 5 * 24 * HOUR
    state = asyncio.run(Database(settings.api_data).read_backup(folder / made[-1]))
    assert not state.rules


def test_without_a_schedule_nothing_is_made(settings: Config) -> None:
    assert timed_backups.make_due(settings, NOON) is None
    assert not timed_backups.end(settings.data.dir)


def test_a_missing_folder_is_recorded_until_a_backup_succeeds(
    settings: Config, folder: Path
) -> None:
    timed_backups.write(settings.data.dir, schedule(folder))
    now = NOON + 24 * HOUR
    watch = BackupWatch(settings.data.dir, lambda: now)
    folder.rmdir()
    for _ in range(2):
        with pytest.raises(Failed):
            timed_backups.make_due(settings, now)
    assert not folder.exists(), "a disk may be mounted there later"
    (problem,) = watch.problems()
    assert problem.startswith(f"timed backups to {folder} fail: back the database up to")
    assert problem.code == "timed-backup-failed"
    seen = watch.seen()
    assert seen is not None
    assert seen.last_success == "2026-11-28T12:00:00Z"
    folder.mkdir()
    assert timed_backups.make_due(settings, now)
    assert watch.problems() == ()


def test_a_full_disk_loses_no_older_backup(settings: Config, tmp_path: Path, need: Need) -> None:
    need("root, who may mount a small file system", os.geteuid() == 0)
    with small_disk(tmp_path / "disk") as disk:
        wanted = schedule(disk, keep=1, is_apart=True)
        first = timed_backups.make(settings, wanted, NOON)
        timed_backups.write(settings.data.dir, wanted)
        filler = fill(disk)
        with pytest.raises(Failed):
            timed_backups.make_due(settings, NOON + 24 * HOUR)
        assert names(disk) == sorted([first.name, filler.name])
        filler.unlink()
        second = timed_backups.make_due(settings, NOON + 24 * HOUR)
        assert second is not None
        assert names(disk) == [second.name]
    with pytest.raises(Failed, match="not mounted"):
        timed_backups.make_due(settings, NOON + 48 * HOUR)
    assert names(disk) == [], "the disk below it gets no backup"


def test_a_backup_that_is_not_made_is_reported_as_late(tmp_path: Path) -> None:
    timed_backups.write(tmp_path, schedule(tmp_path))
    clock = [float(NOON)]
    watch = BackupWatch(tmp_path, lambda: clock[0])
    clock[0] += 24 * HOUR + 60
    assert watch.problems() == ()
    clock[0] += 2 * HOUR
    (problem,) = watch.problems()
    assert problem.code == "timed-backup-late"
    just_started = BackupWatch(tmp_path, lambda: clock[0])
    assert just_started.problems() == (), "it is made soon after a boot"


@pytest.mark.parametrize("content", ["", "{}", '{"every_h": 0}', "[]", "\udcff"])
def test_a_damaged_record_is_no_schedule(content: str, tmp_path: Path) -> None:
    (tmp_path / "timed-backup.json").write_bytes(content.encode(errors="surrogateescape"))
    assert timed_backups.read(tmp_path) is None
    assert BackupWatch(tmp_path).seen() is None


async def test_a_failure_and_its_end_are_reported_once_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup_watch, "_LOOK_S", 0.001)
    notices: list[Notice] = []
    watch = BackupWatch(tmp_path, lambda: float(NOON))
    looks: list[int] = []
    looked = watch.problems

    def problems() -> tuple[Sentence, ...]:
        looks.append(1)
        return looked()

    monkeypatch.setattr(watch, "problems", problems)
    following = asyncio.create_task(watch.follow(notices.append))
    for reason in ("", "no disk", "another reason", "", "no disk"):
        timed_backups.write(tmp_path, schedule(tmp_path, reason=reason))
        looks.clear()
        await eventually(lambda: len(looks) > 1)
    following.cancel()
    with suppress(asyncio.CancelledError):
        await following
    assert [(notice.event.code, notice.is_bad) for notice in notices] == [
        ("problem", True),
        ("over", False),
        ("problem", True),
    ]
    assert notices[1].event.text.startswith("over: timed backups to")


@pytest.mark.slow
async def test_the_supervisor_has_missed_backups_made(
    settings: Config, folder: Path, tmp_path: Path
) -> None:
    file = tmp_path / "egressd.toml"
    file.write_text(f'[data]\ndir = "{settings.data.dir}"\n')
    timed_backups.write(settings.data.dir, schedule(folder, made_at=0))
    argv = [*supervise.COMMAND, "backup", "--config", str(file)]
    record = settings.data.dir / RECORD
    making = HourlyProgram(argv, str(record), first_s=0)
    idle = HourlyProgram(argv, str(record.with_name("none")), first_s=0)
    making.turn()
    idle.turn()
    assert [bool(each.watched) for each in (making, idle)] == [True, False]
    await eventually(lambda: any(name.endswith(".backup") for name in names(folder)), 60)
    while making.due is None:
        select.select(making.watched, [], [])
        making.turn()
    assert 0 < making.due - time.monotonic() <= 3600
    making.stop()
    assert names(folder)[0].startswith("egressd-")

"""``egressd backup --every`` and ``--off``, and what ``egressd status`` has of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pytest
from click.testing import CliRunner, Result

from egressd.app import timed_backups
from egressd.cli import cli, timed_backup
from egressd.model.errors import Invalid
from egressd.model.wording import NONE
from egressd.service.overview import TimedBackups
from egressd.store.database import Database

if TYPE_CHECKING:
    from tests.cli.shell import Shell


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The data of a device that does not run."""

    async def body() -> None:
        database = Database(tmp_path / "data" / "api")
        await database.open()
        await database.close()

    asyncio.run(body())
    (tmp_path / "egressd.toml").write_text(f'[data]\ndir = "{tmp_path}/data"\n')
    return tmp_path / "data"


@pytest.fixture(autouse=True)
def _as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(timed_backup, "has_timer", lambda _: False)


def back_up(data: Path, *arguments: str) -> Result:
    config = data.parent / "egressd.toml"
    return CliRunner().invoke(cli, ["backup", "--config", str(config), *arguments])


def test_the_first_backup_is_made_at_once(data: Path, tmp_path: Path) -> None:
    result = back_up(data, "--every", "2d", "--to", str(tmp_path))
    assert result.exit_code == 0, result.output or result.exception
    (file,) = tmp_path.glob("egressd-*.backup")
    assert result.output.startswith(f"backed up to {file}\n`egressd serve`, while it runs, makes")
    found = timed_backups.read(data)
    assert found is not None
    assert (found.every_h, found.keep, found.folder) == (48, 14, str(tmp_path))
    assert not found.is_apart
    assert found.made_at > 0
    for said in ("timed backups are off", "they are off already"):
        result = back_up(data, "--never")
        assert result.output.startswith(said)
    assert timed_backups.read(data) is None
    assert file.exists()


def test_the_timer_is_enabled_and_disabled(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[str, ...]] = []
    monkeypatch.setattr(timed_backup, "has_timer", lambda _: True)
    monkeypatch.setattr(timed_backup, "systemctl", lambda *arguments: called.append(arguments))
    back_up(data, "--every", "24h", "--keep", "2", "--to", str(tmp_path))
    back_up(data, "--off")
    timer = "egressd-timed-backup.timer"
    assert called == [("enable", "--now", timer), ("disable", "--now", timer)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--every", "0h", "--to", "/tmp"], "--every must be 1h to 31d"),
        (["--every", "32d", "--to", "/tmp"], "--every must be 1h to 31d"),
        (["--every", "90m", "--to", "/tmp"], "--every must be 1h to 31d"),
        (["--every", "-1h", "--to", "/tmp"], "--every must be 1h to 31d"),
        (["--every", "24h", "--keep", "0", "--to", "/tmp"], "--keep must be 1 to 1000"),
        (["--every", "24h", "--to", "here"], "--to must be an absolute path; here is not"),
        (["--every", "24h", "--to", "/none/such"], "--to must be a folder that exists"),
        (["--every", "24h", "--to", "/etc/passwd"], "--to must be a folder that exists"),
        (
            ["--every", "24h", "--to", "/proc/self"],
            "--to must be a folder that can be written to: ",
        ),
        (["--every", "24h"], "--to must be given"),
        (["--keep", "3"], "--every must be given"),
        (["--to", "/tmp"], "--every must be given"),
        (["--off", "--keep", "3"], "--off must be given alone"),
        (["--every", "24h", "--to", "/tmp", "file"], "FILE must not be given"),
        ([], "FILE must be given"),
    ],
)
def test_a_bad_option_is_named_and_changes_nothing(
    data: Path, arguments: list[str], said: str
) -> None:
    result = back_up(data, *arguments)
    assert isinstance(result.exception, Invalid), result.output
    assert said in str(result.exception)
    assert timed_backups.read(data) is None


def test_all_faults_are_reported_at_once(data: Path) -> None:
    result = back_up(data, "--every", "1m", "--keep", "-1", "--to", "x")
    assert isinstance(result.exception, Invalid)
    assert str(result.exception).count("must be") == 3


def test_others_than_root_are_refused(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    result = back_up(data, "--every", "24h", "--to", str(tmp_path))
    assert result.exit_code == 1
    assert "must be set up by root" in result.output


def test_the_status_has_the_last_and_the_next_backup(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "backup" not in shell.say("status")
    assert shell.json("status")["timed_backups"] is None
    seen = TimedBackups(
        folder="/mnt/b",
        every_h=24,
        keep=14,
        last_success="",
        next_run="2026-11-21T03:00:00Z",
        problem=NONE,
    )
    overviews = shell.device.overviews
    monkeypatch.setattr(overviews, "_timed_backups", lambda: seen)
    assert "  none, to /mnt/b" in shell.say("status")
    assert "  2026-11-21T03:00:00Z" in shell.say("status")
    made = msgspec.structs.replace(seen, last_success="2026-11-20T03:00:00Z")
    monkeypatch.setattr(overviews, "_timed_backups", lambda: made)
    assert "  2026-11-20T03:00:00Z, to /mnt/b" in shell.say("status")

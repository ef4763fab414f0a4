"""Units: started, found again, and ended to the last process."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import time
from pathlib import Path

import pytest

from egressd.netd.system import daemon_group
from egressd.netd.system.daemon_group import DaemonGroup, kill_all, members, prepare
from egressd.netd.system.files import write_private
from tests.support.netns import eventually

pytestmark = [pytest.mark.lab, pytest.mark.usefixtures("inside")]

FAMILY = "sleep 60 & setsid -f sleep 61; (sleep 62 &); echo ready > ready; wait"
"""A leader with a child, a child in a session of its own, and an orphan."""


def start(folder: Path, script: str, **covers: str) -> DaemonGroup:
    prepare(folder, {"script": script})
    return DaemonGroup.start(folder, ["/bin/sh", "script"], covers=covers, note={"n": 1})


async def ready(folder: Path) -> None:
    await eventually((folder / "ready").exists, 10)


async def test_all_processes_of_a_unit_are_found_and_ended(run_dir: Path) -> None:
    folder = run_dir / "a"
    started = start(folder, FAMILY)
    await ready(folder)
    await eventually(lambda: len(members(folder)) == 4)
    assert started.pid in members(folder)
    assert os.getsid(started.pid) == started.pid
    await started.end(polite=False)
    assert members(folder) == set()
    assert started.is_over
    await started.end(polite=True)


async def test_a_unit_whose_record_cannot_be_written_does_not_start(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = run_dir / "a"

    def full(path: Path, content: bytes) -> None:
        if path.name == "unit.json":
            raise OSError(28, "No space left on device")
        write_private(path, content)

    monkeypatch.setattr("egressd.netd.system.daemon_group.write_private", full)
    with pytest.raises(OSError, match="No space left"):
        start(folder, FAMILY)
    await eventually(lambda: members(folder) == set())
    assert not (folder / "ready").exists()


async def test_logs_have_a_size_limit(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No process reads them while a line is online; a later netd limits them, too."""
    monkeypatch.setattr(daemon_group, "_LOOK_S", 0.05)
    monkeypatch.setattr(daemon_group, "_LOG_MAX", 10_000)
    line = "0123456789" * 10

    folder = run_dir / "a"
    loop = f"while :; do echo {line}; echo {line} >> ppp.log; sleep 0.001; done"
    started = start(folder, loop)
    logs = [folder / "log", folder / "ppp.log"]

    async def both_are_emptied() -> None:
        for log in logs:
            await eventually(lambda log=log: log.stat().st_size > 5_000, 20)  # type: ignore[misc]
            await eventually(lambda log=log: log.stat().st_size < 2_000, 20)  # type: ignore[misc]

    await both_are_emptied()
    started.release()
    found = await DaemonGroup.find(folder)
    assert found is not None
    await both_are_emptied()
    assert (folder / "script").read_text() == loop
    await found.end(polite=False)


async def test_no_more_of_a_log_is_read_than_its_last_words(run_dir: Path) -> None:
    folder = run_dir / "a"
    started = start(folder, "echo ready > ready; sleep 60")
    await ready(folder)
    assert started.read("ready") == "ready\n"
    assert started.read("none") == ""
    (folder / "ppp.log").write_text("é" * 500_000 + "the last words\n")
    said = started.read("ppp.log")
    assert len(said.encode()) <= 65_536 + 2, "half a character may become another"
    assert said.endswith("éthe last words\n")
    await started.end(polite=False)


async def test_other_processes_are_not_ended(run_dir: Path) -> None:
    one, two = start(run_dir / "a", FAMILY), start(run_dir / "b", FAMILY)
    await ready(run_dir / "a")
    await ready(run_dir / "b")
    before = members(run_dir / "b")
    await one.end(polite=False)
    assert members(run_dir / "b") == before
    assert os.getpid() not in before
    await two.end(polite=False)


async def test_files_are_readable_by_root_only(run_dir: Path) -> None:
    folder = run_dir / "a"
    started = start(folder, "echo secret > made; echo ready > ready; sleep 60")
    await ready(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for path in folder.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
    await started.end(polite=False)


async def test_a_unit_sees_its_own_folders_in_place_of_the_systems(run_dir: Path) -> None:
    folder, public = run_dir / "a", run_dir / "public"
    script = f"echo mine > {public}/file; echo ready > ready; sleep 60"
    started = start(folder, script, inner=str(public))
    await ready(folder)
    assert list(public.iterdir()) == []
    assert (folder / "inner" / "file").read_text() == "mine\n"
    await started.end(polite=False)


async def test_a_polite_end_lets_the_process_clean_up(run_dir: Path) -> None:
    folder = run_dir / "a"
    script = "trap 'echo bye > bye; exit 0' TERM; echo ready > ready; while :; do sleep 0.05; done"
    started = start(folder, script)
    await ready(folder)
    await started.end(polite=True)
    assert (folder / "bye").read_text() == "bye\n"
    assert members(folder) == set()


async def test_a_process_that_ignores_sigterm_is_killed(run_dir: Path) -> None:
    folder = run_dir / "a"
    started = start(folder, "trap '' TERM; echo ready > ready; while :; do sleep 1; done")
    await ready(folder)
    began = time.monotonic()
    await started.end(polite=True)
    assert members(folder) == set()
    assert time.monotonic() - began < 3


async def test_the_end_of_a_unit_is_reported_with_its_status(run_dir: Path) -> None:
    ended = asyncio.Event()
    started = start(run_dir / "a", "echo last words; exit 7")
    started.on_end = ended.set
    await asyncio.wait_for(ended.wait(), 5)
    assert started.is_over
    assert started.how == "it ended with status 7"
    assert started.read(daemon_group.LOG) == "last words\n"


async def test_a_program_that_cannot_be_run_ends_the_unit(run_dir: Path) -> None:
    prepare(run_dir / "a", {})
    started = DaemonGroup.start(run_dir / "a", ["/nowhere"], covers={}, note={})
    await eventually(lambda: started.is_over)
    assert "not found" in started.read(daemon_group.LOG)


async def test_a_released_unit_is_found_again(run_dir: Path) -> None:
    folder = run_dir / "a"
    started = start(folder, FAMILY)
    await ready(folder)
    started.release()
    found = await DaemonGroup.find(folder)
    assert found is not None
    assert (found.pid, found.note) == (started.pid, {"n": 1})
    ended = asyncio.Event()
    found.on_end = ended.set
    os.kill(found.pid, signal.SIGKILL)
    await asyncio.wait_for(ended.wait(), 5)
    await found.end(polite=False)
    assert members(folder) == set()


async def test_children_of_a_dead_leader_are_killed(run_dir: Path) -> None:
    folder = run_dir / "a"
    started = start(folder, FAMILY)
    await ready(folder)
    os.kill(started.pid, signal.SIGKILL)
    await eventually(lambda: started.is_over)
    assert len(members(folder)) == 3
    assert await DaemonGroup.find(folder) is None
    assert members(folder) == set()


@pytest.mark.parametrize("record", [b"", b"{", b'{"pid": 1, "started": 1, "note": {}}'])
async def test_a_record_with_the_pid_of_another_process_is_ignored(
    run_dir: Path, record: bytes
) -> None:
    folder = run_dir / "a"
    started = start(folder, FAMILY)
    await ready(folder)
    (folder / "unit.json").write_bytes(record)
    assert await DaemonGroup.find(folder) is None
    assert members(folder) == set()
    await eventually(lambda: started.is_over)


async def test_a_missing_unit_is_no_error(run_dir: Path) -> None:
    assert await DaemonGroup.find(run_dir / "none") is None
    await kill_all(run_dir / "none")
    daemon_group.remove(run_dir / "none")


async def test_mounts_of_other_programs_may_have_any_name(run_dir: Path) -> None:
    """Past fault: one mount with a name that is not UTF-8 kept netd from starting, and an edited
    line continued to its old server.
    """
    odd = os.fsencode(run_dir) + b"/\xe9\x0b\xc2\x85 x"
    os.mkdir(odd)  # noqa: PTH102 (it is no text)

    folder = run_dir / "l2tp_1"
    script = b'mount -t tmpfs none "$0" && echo ready && exec sleep 60'
    other = await asyncio.create_subprocess_exec(
        "unshare", "-m", "sh", "-c", script, odd, stdout=asyncio.subprocess.PIPE
    )
    assert other.stdout is not None
    assert await other.stdout.readline() == b"ready\n"
    try:
        started = start(folder, FAMILY)
        await ready(folder)
        assert started.pid in members(folder)
        assert other.pid not in members(folder)
        await kill_all(folder)
        assert members(folder) == set()
    finally:
        other.kill()
        await other.wait()

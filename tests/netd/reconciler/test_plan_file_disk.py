"""The plan file on a disk that is full, that fails, or that cannot be written to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from egressd.model.errors import Failed
from egressd.netd.reconciler.plan_file import PlanFile
from tests.netd.reconciler import plan_file_writer
from tests.netd.reconciler.plan_file_writer import FIRST, SECOND, store
from tests.support.disks import fill, read_only, small_disk
from tests.support.needs import Need
from tests.support.tracing import traced

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def _needs(need: Need) -> None:
    need("root, who may mount a small file system", os.geteuid() == 0)
    need("the package strace", shutil.which("strace") is not None)


class Writer:
    """A process that stores changes of `plan_file_writer`, given by name."""

    def __init__(self, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", plan_file_writer.__name__, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            cwd=ROOT,
        )
        self.pid = self._process.pid

    def store(self, change: str) -> str:
        """Store a change; return the result."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{change}\n")
        return self._process.stdout.readline().strip()

    def end(self, how: str) -> None:
        """End the process; `how` is ``well`` or ``killed``."""
        if how == "killed":
            self._process.kill()
        self._process.communicate()


@pytest.fixture
def write() -> Iterator[Callable[[Path], Writer]]:
    """Starts a writer; none outlives the test."""
    writers: list[Writer] = []

    def start(path: Path) -> Writer:
        writers.append(Writer(path))
        return writers[-1]

    yield start
    for writer in writers:
        writer.end("killed")


def stored(path: Path) -> set[str]:
    """Return the hosts of the plan in the file."""
    with closing(PlanFile(path)) as file:
        plan = file.load()
    assert plan is not None
    return set(plan.hosts)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk") as path:
        yield path


def test_a_refused_change_does_not_reappear(
    tmp_path: Path, write: Callable[[Path], Writer]
) -> None:
    # Only its fsync failed: the change is complete in SQLite's log until that is emptied.
    writer = write(tmp_path / "plan.db")
    assert writer.store("FIRST") == "stored"
    with traced(writer.pid, "fdatasync", "inject=fdatasync:error=EIO:when=1"):
        assert "disk I/O error" in writer.store("REFUSED")
    writer.end("killed")
    assert stored(tmp_path / "plan.db") == {"10.0.0.1"}


def test_a_refused_change_does_not_reappear_with_the_next_one(
    tmp_path: Path, write: Callable[[Path], Writer]
) -> None:
    writer = write(tmp_path / "plan.db")
    assert writer.store("FIRST") == "stored"
    # The log could not be emptied either.
    with traced(writer.pid, "fdatasync", "inject=fdatasync:error=EIO:when=1..2"):
        assert "disk I/O error" in writer.store("REFUSED")
    assert writer.store("SECOND") == "stored"
    writer.end("killed")
    assert stored(tmp_path / "plan.db") == {"10.0.0.1", "10.0.0.6"}


@pytest.mark.parametrize("end", ["well", "killed"])
def test_a_full_disk_loses_no_stored_change_or_plan(
    disk: Path, write: Callable[[Path], Writer], end: str
) -> None:
    path = disk / "netd" / "plan.db"
    writer = write(path)
    assert writer.store("FIRST") == "stored"
    filler = fill(disk)
    assert "database or disk is full" in writer.store("LARGE")
    writer.end(end)
    assert stored(path) == {"10.0.0.1"}
    filler.unlink()
    assert stored(path) == {"10.0.0.1"}
    assert write(path).store("SECOND") == "stored"


def test_a_plan_is_read_from_a_read_only_disk(disk: Path) -> None:
    path = disk / "plan.db"
    with closing(PlanFile(path)) as file:
        store(file, FIRST)
    with closing(PlanFile(path)) as file:
        with read_only(disk):
            plan = file.load()
            assert plan is not None
            with pytest.raises(Failed, match="write the plan file"):
                store(file, SECOND)
        store(file, SECOND)
    assert (set(plan.hosts), stored(path)) == ({"10.0.0.1"}, {"10.0.0.1", "10.0.0.6"})


def test_a_damaged_plan_on_a_read_only_disk_is_not_loaded(disk: Path) -> None:
    path = disk / "plan.db"
    path.write_bytes(b"not a database" * 100)
    with read_only(disk), closing(PlanFile(path)) as file:
        assert file.load() is None

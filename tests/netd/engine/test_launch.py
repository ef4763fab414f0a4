"""Finding a worker by the file it locks, and never mistaking another process for it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from egressd.netd.engine import launch
from egressd.netd.system.processes import start_time
from tests.support.engine import descriptors


@contextmanager
def locked(path: Path, text: str) -> Iterator[None]:
    """Hold the lock of the worker at `path`, with `text` as its content."""
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(text)
        file.flush()
        yield


def test_no_holder_is_found_without_a_lock_file(tmp_path: Path) -> None:
    assert launch.holder(tmp_path / "worker-1.sock") is None


def test_no_holder_is_found_if_the_worker_is_dead(tmp_path: Path) -> None:
    path = tmp_path / "worker-1.sock"
    path.with_suffix(".lock").write_text(f"{os.getpid()} {start_time(os.getpid())}\n")
    assert launch.holder(path) is None


def test_the_holder_of_the_lock_is_found(tmp_path: Path) -> None:
    path = tmp_path / "worker-1.sock"
    with locked(path, f"{os.getpid()} {start_time(os.getpid())}\n"):
        holder = launch.holder(path)
        assert holder is not None
        pid, pidfd = holder
        assert pid == os.getpid()
        assert f"Pid:\t{pid}\n" in Path(f"/proc/self/fdinfo/{pidfd}").read_text()
        os.close(pidfd)


def test_a_process_with_the_reused_pid_of_a_dead_worker_is_no_holder(tmp_path: Path) -> None:
    path = tmp_path / "worker-1.sock"
    before = descriptors(os.getpid())
    with locked(path, f"{os.getpid()} {start_time(os.getpid()) - 1}\n"):
        assert launch.holder(path) is None
    assert descriptors(os.getpid()) == before


def test_a_worker_with_an_empty_lock_file_is_no_holder(tmp_path: Path) -> None:
    path = tmp_path / "worker-1.sock"
    with locked(path, ""):
        assert launch.holder(path) is None


def test_a_start_time_is_parsed_with_any_program_name(tmp_path: Path) -> None:
    program = tmp_path / "a) b (c"
    program.symlink_to(sys.executable)
    ended = subprocess.run(
        [program, "-c", "import sys; sys.stdin.read()"], input="", timeout=10, check=True, text=True
    )
    assert ended.returncode == 0
    with subprocess.Popen([program, "-c", "input()"], stdin=subprocess.PIPE) as process:
        started = start_time(process.pid)
        assert started >= start_time(os.getpid())
        process.communicate(b"\n", timeout=10)


def test_the_reported_log_line_is_the_one_that_names_the_fault(tmp_path: Path) -> None:
    path = tmp_path / "worker-1.sock"
    assert launch.last_words(path) == ""
    launch.log_path(path).write_text("INFO x\n" * 20_000 + "panic: oh no\n\ngoroutine 1\n")
    assert launch.last_words(path) == "panic: oh no"
    launch.log_path(path).write_text("Traceback\n  File\nOSError: [Errno 1] not allowed\n")
    assert launch.last_words(path) == "OSError: [Errno 1] not allowed"
    launch.log_path(path).write_text("nothing of note\n")
    assert launch.last_words(path) == ""

"""An unprivileged process reaches its directories below one that only root may enter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from egressd.app.private_mounts import first_closed, make_reachable, program_directories

NOBODY = 65534

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")


def as_nobody(directory: Path, *, reachable: bool) -> str:
    """Return the view of an unprivileged child: the content of its file, or the error's name."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if reachable:
                make_reachable([directory], NOBODY, NOBODY)
            os.setgroups([])
            os.setresgid(NOBODY, NOBODY, NOBODY)
            os.setresuid(NOBODY, NOBODY, NOBODY)
            (directory / "written").write_text("by nobody")
            answer = (directory / "file").read_text()
        except OSError as error:
            answer = type(error).__name__
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    with open(read) as pipe:
        return pipe.read()


@needs_root
def test_a_directory_below_a_closed_one_is_made_reachable(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    data = closed / "deep" / "data"
    data.mkdir(parents=True)
    (data / "file").write_text("content")
    os.chown(data, NOBODY, NOBODY)
    closed.chmod(0o700)
    assert as_nobody(data, reachable=False) == "PermissionError"
    assert as_nobody(data, reachable=True) == "content"
    assert (data / "written").read_text() == "by nobody"
    assert closed.stat().st_mode & 0o777 == 0o700


def test_the_first_closed_ancestor_is_found(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b" / "c"
    inner.mkdir(parents=True)
    (tmp_path / "a").chmod(0o755)
    (tmp_path / "a" / "b").chmod(0o700)
    assert first_closed(inner, os.getuid(), os.getgid()) is None
    barrier = first_closed(inner, NOBODY, NOBODY)
    assert barrier is not None
    assert barrier in (tmp_path / "a" / "b", *tmp_path.parents, tmp_path)


@pytest.mark.slow
def test_every_loaded_module_is_from_a_program_directory() -> None:
    program = program_directories()
    program += [path.resolve() for path in program]
    code = (
        "import sys; from egressd.app import api_process;"
        "print(*{getattr(m, '__file__', None) or '' for m in sys.modules.values()}, sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    files = [Path(line) for line in done.stdout.split("\n") if line]
    assert len(files) > 500

    def is_reachable(file: Path) -> bool:
        target = file.resolve()
        if any(target.is_relative_to(path) for path in program):
            return True
        # Debian's sitecustomize.py is a link in such a directory that leads to /etc.
        is_link = any(file.is_relative_to(path) for path in program)
        return is_link and first_closed(target, NOBODY, NOBODY) is None

    assert [file for file in files if not is_reachable(file)] == []

"""Processes whose system calls are recorded, or fail on request."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def traced(
    pid: int, calls: str, inject: str = "", record: Path = Path(os.devnull)
) -> Iterator[None]:
    """Trace `calls` of a process until the end of the block or of the process (strace(1))."""
    strace = shutil.which("strace")
    assert strace is not None
    arguments = ["-f", "-o", str(record), "-e", f"trace={calls}", "-p", str(pid)]
    if inject:
        arguments += ["-e", inject]
    with subprocess.Popen([strace, *arguments], stderr=subprocess.PIPE, text=True) as tracer:
        assert tracer.stderr is not None
        assert "attached" in tracer.stderr.readline()
        try:
            yield
        finally:
            tracer.terminate()

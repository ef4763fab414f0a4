"""Databases to open, and a server of processes to kill."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from egressd.model.desired import Edit
from egressd.store.database import Database

OpenDatabase = Callable[[Path], AbstractAsyncContextManager[Database]]
EditsOf = Callable[[int], list[Edit]]

SERVER = Path(__file__).with_name("crash_server.py")


class CrashServer:
    """``crash_server.py``, and a tracer for its children."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(SERVER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        assert self.hear() == "serving"

    def say(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")

    def hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def hear_ready(self) -> int:
        """Return the process id of a child that waits for its tracer and for the line to
        continue.
        """
        word, pid = self.hear().split()
        assert word == "ready"
        return int(pid)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)

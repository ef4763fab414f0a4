"""The process of `egressd_lab.inside` in a namespace, seen from outside."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from egressd_lab.process import Program
from egressd_lab.wire import Channel


class Prober:
    """The process; started with its first use."""

    def __init__(self, namespace: str, folder: Path, name: str) -> None:
        self._path = folder / f"{name}.sock"
        argv = [sys.executable, "-m", "egressd_lab.inside", str(self._path)]
        self._program = Program(namespace, argv, folder / f"{name}.log")
        self._channel = Channel(self._path)
        self._lock = threading.Lock()
        self._is_ready = False

    def start(self) -> None:
        """Begin to start the process, without waiting until it answers."""
        if not self._program.running:
            self._path.unlink(missing_ok=True)
            self._program.start()

    def ready(self) -> Channel:
        """Return the channel to the process, once it answers."""
        with self._lock:
            if not self._is_ready:
                self.start()
                self._channel.wait_ready()
                self._is_ready = True
        return self._channel

    def close(self) -> None:
        """End the process."""
        self._channel.close()
        self._program.kill()
        self._path.unlink(missing_ok=True)
        self._is_ready = False

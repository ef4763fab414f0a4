"""The process of `egressd_lab.inside` in a namespace, seen from outside."""

from __future__ import annotations

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from egressd.model.errors import Failed
from egressd_lab import wire
from egressd_lab.wire import Channel


class ForkServer:
    """The process that forks the others; started with its first use, one for this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def fork(self, namespace: str, path: Path, log: Path) -> int:
        """Start a process in a namespace; return a descriptor of it (pidfd_open(2))."""
        with self._lock:
            try:
                requests = self._started()
                wire.send(requests, [namespace, str(path), str(log)])
                answer = wire.receive(requests)
            except OSError as error:
                raise Failed(f"start a process in {namespace}", str(error)) from error
        if answer is None or answer[0]:
            reason = "the fork server has ended" if answer is None else answer[0]
            raise Failed(f"start a process in {namespace}", reason)
        (process,) = answer[1]
        os.set_inheritable(process, False)
        return process

    def close(self) -> None:
        """End the process; those that it has forked go on."""
        with self._lock:
            if self._requests is not None:
                self._requests.close()
            if self._process is not None:
                self._process.wait()

    def _started(self) -> socket.socket:
        """Return a socket of the running server."""
        if self._requests is None or self._process is None or self._process.poll() is not None:
            self._requests, theirs = socket.socketpair()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "egressd_lab.inside"],
                    stdin=theirs.fileno(),
                    start_new_session=True,
                )
        return self._requests


_FORK_SERVER = ForkServer()
atexit.register(_FORK_SERVER.close)


class Prober:
    """The process; started with its first use."""

    def __init__(self, namespace: str, folder: Path, name: str) -> None:
        self._namespace = namespace
        self._path = folder / f"{name}.sock"
        self._log = folder / f"{name}.log"
        self._channel = Channel(self._path)
        self._lock = threading.Lock()
        self._process: int | None = None
        self._is_ready = False

    def start(self) -> None:
        """Begin to start the process, without waiting until it answers."""
        if self._process is None:
            self._path.unlink(missing_ok=True)
            self._process = _FORK_SERVER.fork(self._namespace, self._path, self._log)

    def ready(self) -> Channel:
        """Return the channel to the process, once it answers."""
        with self._lock:
            if not self._is_ready:
                self.start()
                self._channel.wait_ready()
                self._is_ready = True
        return self._channel

    def close(self) -> None:
        """End the process, and wait until it has ended."""
        self._channel.close()
        if self._process is not None:
            signal.pidfd_send_signal(self._process, signal.SIGKILL)
            ended = select.poll()
            ended.register(self._process, select.POLLIN)
            ended.poll()
            os.close(self._process)
            self._process = None
        self._path.unlink(missing_ok=True)
        self._is_ready = False

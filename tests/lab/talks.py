"""Clients that keep one UDP socket, and what they hear by it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from egressd.lab.lab import Lab
from egressd.lab.netns import exec_argv
from tests.lab.device_state import SERVER, eventually

TALKER = str(Path(__file__).with_name("talker.py"))


class Talk:
    """What a client's one socket hears."""

    def __init__(self, program: subprocess.Popen[str]) -> None:
        self.last = ""
        self._program = program
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._program.stdout is not None
        for line in self._program.stdout:
            self.last = line.strip()

    def is_seen_by(self, address: str) -> None:
        """Fails unless the far end soon sees it come from there."""
        eventually(lambda: self.last == address, 8)

    def close(self) -> None:
        self._program.kill()
        self._program.wait()
        self._reader.join()


@contextmanager
def talking(lab: Lab, client: int, port: int = 7) -> Iterator[Talk]:
    talker = lab.client(client)
    argv = [sys.executable, TALKER, "talk", talker.address, SERVER, str(port)]
    argv = exec_argv(talker.host.namespace, argv)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as program:
        talk = Talk(program)
        try:
            yield talk
        finally:
            talk.close()

"""A program that `supervise` starts at each full hour: the process that makes timed backups.

Loads the standard library only, as all of `supervise` does.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

RECORD: Final = "timed-backup.json"
"""The name of the file that is there if timed backups are set up (`timed_backups`)."""

_HOUR_S: Final = 3600.0
FIRST_S: Final = 60.0
"""Seconds from the start until a timed backup that was missed is made: the api opens the database
meanwhile."""


class HourlyProgram:
    """A program that is started at each full hour if a file is there."""

    def __init__(self, argv: Sequence[str], file: str, first_s: float = FIRST_S) -> None:
        """It is started for the first time after `first_s` seconds."""
        self._argv = argv
        self._file = file
        self._pid = self._pidfd = -1
        self._due = time.monotonic() + first_s

    @property
    def watched(self) -> list[int]:
        """The descriptors that are readable when the program has ended."""
        return [self._pidfd] if self._pidfd >= 0 else []

    @property
    def due(self) -> float | None:
        """The time of the next start, or None while the program runs."""
        return None if self._pid > 0 else self._due

    def turn(self) -> None:
        """Do what is to be done now: note the program's end, or start it."""
        if self._pid > 0:
            if os.waitpid(self._pid, os.WNOHANG)[0]:
                self._ended()
        elif time.monotonic() >= self._due:
            self._due = self._next()
            # A failure is recorded by the process; if it cannot start, the api reports it as late.
            with suppress(OSError):
                if os.path.exists(self._file):  # noqa: PTH110 - pathlib is not loaded here
                    self._pid = os.posix_spawn(
                        self._argv[0],
                        [*self._argv],
                        os.environ,
                        setsigdef=(signal.SIGPIPE, signal.SIGXFSZ),
                    )
                    self._pidfd = os.pidfd_open(self._pid)

    def stop(self) -> None:
        """End the program if it runs, and wait for its end."""
        if self._pid > 0:
            os.kill(self._pid, signal.SIGTERM)
            os.waitpid(self._pid, 0)
            self._ended()

    def _ended(self) -> None:
        if self._pidfd >= 0:
            os.close(self._pidfd)
        self._pid = self._pidfd = -1
        self._due = self._next()

    def _next(self) -> float:
        return time.monotonic() + _HOUR_S - time.time() % _HOUR_S

"""Waits for a process that follow its progress: the processor time that it gets or waits for.

A limit in seconds ends a healthy process on a machine that is slower than the one the limit was
measured on, or that is busy with other work.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

_LEAST: Final = 1 / 100
"""Share of one processor below which a process makes no progress, unless it waits for its turn. A
thread that waits for Python's global lock takes 0.7 % by waking up 200 times a second."""
_SLICES: Final = 20
"""Number of looks at the process in the time that it may make no progress."""
_TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")


class GivenUp(Exception):
    """The process makes no progress, or has done more work than it can need; ``waited_s`` is the
    time that it was waited for, in seconds.
    """

    def __init__(self, waited_s: float) -> None:
        super().__init__(f"given up after {waited_s:.0f} s")
        self.waited_s = waited_s


class Effort(msgspec.Struct, frozen=True):
    """The processor time that a process has used, in seconds, and whether it has more to do: it
    runs, or waits for a processor.
    """

    used_s: float
    is_runnable: bool


class WaitLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of a wait for a process: it ends if that has made no progress for ``silence_s``
    seconds, or has used ``work_s`` seconds of processor time in at least ``silence_s``, or
    after ``longest_s`` seconds.
    """

    silence_s: float
    work_s: float
    longest_s: float = math.inf

    async def wait_for(self, work: asyncio.Future[Any], look: Callable[[], Effort]) -> None:
        """Wait until `work` is done, whatever its result; `look` returns the effort of the process.

        Raises GivenUp, and leaves `work` alone then.
        """
        progress = ProcessProgress(self, look())
        slice_s = self.silence_s / _SLICES
        waited_s = 0.0
        while not (await asyncio.wait({work}, timeout=slice_s))[0]:
            # Not the clock's: while this process, or the machine, was held up, nothing could come.
            waited_s += slice_s
            if progress.is_given_up(waited_s, look()):
                raise GivenUp(waited_s)


class ProcessProgress:
    """The progress of one process, whose effort was `first` before. Pure."""

    def __init__(self, limits: WaitLimits, first: Effort) -> None:
        self._limits = limits
        self._first_s = first.used_s
        self._used_s = first.used_s
        """Processor time at which it last had made progress."""
        self._progress_at_s = 0.0
        """The time of waiting then."""

    def is_given_up(self, waited_s: float, effort: Effort) -> bool:
        """Return whether the process is to be given up, after `waited_s` seconds of waiting."""
        limits = self._limits
        if effort.is_runnable or effort.used_s - self._used_s >= _LEAST * limits.silence_s:
            self._progress_at_s, self._used_s = waited_s, effort.used_s
        if waited_s - self._progress_at_s >= limits.silence_s or waited_s >= limits.longest_s:
            return True
        return effort.used_s - self._first_s >= limits.work_s and waited_s >= limits.silence_s


def of_process(pid: int) -> Effort:
    """Return the effort of a process with all its threads, of which the first is runnable or not;
    none if there is no such process.
    """
    return _effort(Path(f"/proc/{pid}/stat"))


def of_main_thread(pid: int) -> Effort:
    """Return the effort of a process's first thread; none if there is no such process."""
    return _effort(Path(f"/proc/{pid}/task/{pid}/stat"))


def _effort(stat: Path) -> Effort:
    try:
        text = stat.read_text()
    except OSError:
        return Effort(0.0, is_runnable=False)
    # Fields 3, 14 and 15 of proc_pid_stat(5): state, utime and stime. Field 2, the program's name,
    # may hold any character; it ends at the last parenthesis.
    fields = text.rpartition(")")[2].split()
    return Effort((int(fields[11]) + int(fields[12])) * _TICK_S, is_runnable=fields[0] == "R")

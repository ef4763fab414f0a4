"""Ctrl-C in a command that has something to undo: it ends the waiting, and nothing else."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Self


class Interrupts:
    """A context manager: SIGINT raises KeyboardInterrupt in the block of `allowed` only, and there
    once. What undoes the work behind it is never interrupted.

    To ignore the signal there would not be enough: a second Ctrl-C may come before the first
    statement of an ``except`` or ``finally``.
    """

    def __init__(self) -> None:
        self._is_allowed = False
        self._was_asked = False

    def __enter__(self) -> Self:
        self._before = signal.getsignal(signal.SIGINT)
        if self._before is not signal.SIG_IGN:  # as in a shell's background (POSIX sh, 2.11)
            signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    @contextmanager
    def allowed(self) -> Iterator[None]:
        """Let Ctrl-C end the block, also one that was pressed before it."""
        self._is_allowed = True
        try:
            if self._was_asked:
                self._interrupt()
            yield
        finally:
            self._is_allowed = False

    def _interrupt(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        self._was_asked = True
        if self._is_allowed:
            self._is_allowed = False
            raise KeyboardInterrupt

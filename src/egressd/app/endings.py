"""The signals that end a process; loaded before anything else, so it loads nothing else."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

ENDINGS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""What tells netd to stop, or to make room for another one."""


@contextmanager
def held_back() -> Iterator[None]:
    """Let a process that is started meanwhile have none of them before it asks for them.

    The mask is inherited (execve(2)), and one that is held back is delivered later.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        yield
    finally:
        # Not what was before: that may be somebody else's block, who is done by now.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)

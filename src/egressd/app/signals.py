"""The signals that end a process. This module is loaded before all others, so it loads none of
them.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

ENDINGS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
"""The signals that make netd stop, or make room for a successor."""


@contextmanager
def held_back() -> Iterator[None]:
    """Block the signals for the processes that are started meanwhile, until these unblock them.

    The mask is inherited (execve(2)), and a blocked signal is delivered later.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDINGS)
    try:
        yield
    finally:
        # Not the mask from before: it may be that of another `held_back`, which has ended since.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)

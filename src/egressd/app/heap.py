"""The C library's heap of a process that has started: what the start left over goes back to the
kernel.
"""

from __future__ import annotations

import ctypes
import gc
from contextlib import suppress
from typing import Final

_M_ARENA_MAX: Final = -8  # malloc.h
_ARENAS: Final = 2
"""Heaps for all threads. By default each thread gets one of its own, up to eight for a CPU."""


def limit_arenas() -> None:
    """Bound the number of heaps; to be called before there are threads."""
    with suppress(OSError, AttributeError):  # another C library has no such function
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, _ARENAS)


def trim() -> None:
    """Free what the start left over. What is there now is left out of later collections."""
    gc.collect()
    gc.freeze()
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)

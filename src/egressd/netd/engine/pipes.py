"""Room for the pipes through which the engine moves bytes from socket to socket.

Where nothing is encrypted the Go runtime splices (splice(2)), and keeps two pipes of 1 MiB for each
connection while it lasts. The kernel lets a user have 64 such pipes; all further ones hold two
pages (pipe(7), ``pipe-user-pages-soft``), and splicing by so little costs twice the processor
time: 200 connections came to 4 Gbit/s where one process of root's made 7.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_LIMIT: Final = Path("/proc/sys/fs/pipe-user-pages-soft")
_SHARE: Final = 4
"""Pipes are counted by what they may hold, which is seldom a page."""


def make_room(limit: Path = _LIMIT, memory: int | None = None) -> None:
    """Let a user's pipes hold up to a quarter of the `memory` (pages; the machine's by default).

    A higher limit stays, and so does none (0). The limit is the whole machine's, whichever
    namespace this is in. Where it cannot be set, in a container say, all works, but slower.
    """
    pages = os.sysconf("SC_PHYS_PAGES") if memory is None else memory
    with suppress(OSError):
        if 0 < int(limit.read_text()) < pages // _SHARE:
            limit.write_text(str(pages // _SHARE))

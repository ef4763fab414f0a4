"""The clock of an emulated machine that leaps: nothing is waited for, except the host's files.

While every process sleeps, QEMU sets such a machine's clock to its next timer at once. It does not
know that a file of the host is on its way then: a program that is read for the first time would
take minutes by that clock, and those that wait for it would give up. A machine keeps the files that
it has read in memory.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def steady() -> Iterator[None]:
    """Keep the processor busy in the block by a process that yields to every other one, so that
    the clock counts instructions only. To sleep in the block takes several times as long.
    """
    with subprocess.Popen(["sh", "-c", "while :; do :; done"]) as spinning:
        os.sched_setscheduler(spinning.pid, os.SCHED_IDLE, os.sched_param(0))
        try:
            yield
        finally:
            spinning.kill()

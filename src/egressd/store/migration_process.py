"""The process that upgrades an older database by Alembic, and ends.

`upgrade_apart` starts it; `main` is what runs there. A service that has upgraded its database would
otherwise keep Alembic in memory for as long as it runs.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from egressd.model.errors import Failed
from egressd.store.connection import reported
from egressd.store.own_process import ENVIRONMENT, command

_PR_SET_PDEATHSIG: Final = 1
"""linux/prctl.h."""


def upgrade_apart(path: Path) -> None:
    """Bring the older database `path` to the newest schema; blocks. Raises Failed, and the database
    is then as it was.
    """
    argv = command(__name__)
    with reported(f"upgrade the database {path}"):
        given = f"{os.getpid()}\n{path.absolute()}".encode()
        ended = subprocess.run(
            argv, input=given, stderr=subprocess.PIPE, env=ENVIRONMENT, check=False
        )
    if ended.returncode:
        told = ended.stderr.decode(errors="replace").strip().splitlines()
        cause = told[-1] if told else f"the process that does it ended with {ended.returncode}"
        raise Failed(f"upgrade the database {path}", cause)


def main() -> None:
    """Upgrade the database that standard input names, for the process that it names."""
    parent, path = sys.stdin.read().split("\n")
    # The caller's end is this process's, too: the next caller would meet an upgrade under way.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        sys.exit("the process that wanted it is gone")
    from egressd.store.migrating import Migrations

    try:
        with reported("upgrade"):
            Migrations().upgrade_file(Path(path))
    except Failed as error:
        sys.exit(error.cause)

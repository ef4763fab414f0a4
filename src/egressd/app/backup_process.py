"""Make the timed backup if one is due. A timer starts this process at each full hour.

It logs what it does. A failure is recorded, too, for the api, which reports it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import structlog

from egressd.app import config, logs, timed_backups
from egressd.model.errors import EgressdError

log = structlog.get_logger()


def main(path: Path | None) -> None:
    """Make the backup, and remove the oldest ones. The exit status is 1 if it failed."""
    logs.configure("backup")
    os.umask(0o077)
    try:
        made = timed_backups.make_due(config.load(path), time.time())
    except EgressdError as error:
        log.error("timed backup failed", error=str(error))
        sys.exit(1)
    if made is not None:
        log.info("timed backup made", file=str(made))

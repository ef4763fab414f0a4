"""Log lines that cannot be written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SPEAK = """
import structlog
from egressd.app import logs

logs.configure("netd")
for _ in range(3):
    structlog.get_logger().warning("a line of no use")
print("at work")
"""


def test_p2_a_failed_log_write_stops_no_work() -> None:
    with Path("/dev/full").open("wb") as full:  # like a full disk, or a terminal that is gone
        done = subprocess.run(
            [sys.executable, "-c", SPEAK], stdout=subprocess.PIPE, stderr=full, check=False
        )
    assert done.stdout == b"at work\n"

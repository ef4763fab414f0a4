"""Errors of instances reach netd, regardless of the state of the log."""

from __future__ import annotations

import subprocess
import sys

COMPLAINT = "ERROR connection: open connection to a.test:80 using outbound/socks[node:1]: refused"
WORKER = """
import asyncio, sys
from egressd.netd.engine import outbound_errors

async def main():
    troubles = outbound_errors.OutboundErrors()
    troubles.open()
    with open(outbound_errors.LOG_OUTPUT, "w") as log:
        for complaint in sys.argv[1:]:
            print(complaint, file=log)
    print(*await troubles.next())

outbound_errors.reserve()
asyncio.run(main())
"""


def test_an_error_reaches_netd_despite_a_full_disk() -> None:
    with open("/dev/full", "w") as log:
        done = subprocess.run(
            [sys.executable, "-c", WORKER, COMPLAINT],
            check=False,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            timeout=10,
        )
    assert done.stdout == "node:1\n"


def test_a_worker_out_of_descriptors_is_no_error_of_a_node() -> None:
    none_left = f"{COMPLAINT.replace('node:1', 'node:2')}: dial tcp: socket: too many open files"
    done = subprocess.run(
        [sys.executable, "-c", WORKER, none_left, COMPLAINT],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=10,
    )
    assert done.stdout == "node:1\n"

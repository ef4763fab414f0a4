"""Stores changes in a plan file: ``python -m tests.netd.reconciler.plan_file_writer FILE``.

Reads the name of a constant of this module, line by line, and prints ``stored`` or the reason for
each. So a test can trace and kill the process that writes.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

from egressd.model.errors import Failed
from egressd.model.plan import Change, Patch
from egressd.netd.reconciler.plan_file import PlanFile

FIRST = Change(base=0, revision=1, hosts=Patch(put={"10.0.0.1": 0x1000_0001}))
REFUSED = Change(base=1, revision=2, hosts=Patch(put={"10.0.0.5": 0x3000_0000}))
SECOND = Change(base=1, revision=2, hosts=Patch(put={"10.0.0.6": 0x1000_0001}))
LARGE = Change(
    base=1,
    revision=2,
    hosts=Patch(put={f"10.{n >> 8}.{n & 255}.1": 0x1000_0001 for n in range(40_000)}),
)


def store(file: PlanFile, change: Change) -> None:
    """Store a change. Raises Failed."""
    with file.writing(change):
        pass


def main() -> None:
    with closing(PlanFile(Path(sys.argv[1]))) as file:
        file.load()
        for line in sys.stdin:
            try:
                store(file, globals()[line.strip()])
            except Failed as error:
                print(error, flush=True)
            else:
                print("stored", flush=True)


if __name__ == "__main__":
    main()

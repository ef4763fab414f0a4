"""Chaos with VPN lines in it: ``python -m tests.vm.inside.chaos SHARED MINUTES SEED RATE``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import msgspec

from egressd_lab.chaos.report import Trace, line
from egressd_lab.chaos.story import Chaos
from tests.vm.boot import DONE
from tests.vm.inside.netns import sh

RECOVER_S: Final = 20.0
"""Seconds. The emulated processor runs a billion instructions a second, and is the only one."""


def main(shared: Path, minutes: float, seed: int, rate: float) -> None:
    """Run it, and leave its report and trace in `shared`."""
    # The machine's files are those of its host, and read-only.
    sh(
        "modprobe -a overlay nf_conntrack_netlink ppp_generic; "
        "mkdir -p /tmp/etc /tmp/work /tmp/disk; "
        "mount -t overlay -o lowerdir=/etc,upperdir=/tmp/etc,workdir=/tmp/work overlay /etc; "
        "mount -t tmpfs -o size=32m,mode=755 chaos /tmp/disk; mkdir /tmp/disk/data; "
        "chmod 755 /tmp/disk /tmp/disk/data; ip link set lo up"
    )

    def say(event: Trace) -> None:
        print(line(event), flush=True)

    chaos = Chaos(
        minutes=minutes,
        seed=seed,
        rate=rate,
        disk=Path("/tmp/disk/data"),
        say=say,
        recover_s=RECOVER_S,
        settings={"engine": {"workers": 1}},
    )
    try:
        report = chaos.run()
        (shared / "report.json").write_bytes(msgspec.json.encode(report))
    finally:
        (shared / DONE).touch()


if __name__ == "__main__":
    minutes, seed, rate = sys.argv[2:]
    main(Path(sys.argv[1]), float(minutes), int(seed), float(rate))

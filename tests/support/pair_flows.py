"""Many new flows through a pair of boxes: what the standby's kernel has of them, and the cost.

``python -m tests.support.pair_flows [--flows N] [--rate N]`` prints both.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from egressd_lab.spec import WEB_SERVERS
from tests.support.device import eventually
from tests.support.netns import JoinedNamespace
from tests.support.paired_lab import PairedLab, other, paired_lab

CLIENT: Final = 1
_PORTS: Final = range(20_000, 30_000)
"""Ports of the client. With each port of the far end they make as many flows."""
_FIRST: Final = 10_000
"""The first port of the far end that flows go to."""
_BATCH_S: Final = 0.01
_TIMEOUT: Final = "net.netfilter.nf_conntrack_udp_timeout"
_KEPT_S, _DEFAULT_S = 600, 30
"""Seconds for which the kernels remember a flow without an answer; the second is the default."""
_SHARE: Final = 0.99
_TICKS: Final = os.sysconf("SC_CLK_TCK")


class Spread(NamedTuple):
    """The flows in both kernels, and the cost."""

    active: int
    """Flows in the kernel of the active box."""
    standby: int
    """Flows in the other kernel once it has `_SHARE` of them."""
    late_s: float
    """Seconds from the last one's begin until then."""
    cpu: dict[int, float]
    """Box -> the part of a core that its conntrackd has used meanwhile."""


def spread_flows(pair: PairedLab, flows: int, rate: float) -> Spread:
    """Have `CLIENT`, which must have a rule, begin `flows` flows, `rate` a second."""
    active = pair.active()
    client = pair.lab.client(CLIENT)
    before = {box: _used_s(pair, box) for box in pair.boxes}
    begun = time.monotonic()
    # No flow is answered: the first ones would be forgotten while the last ones begin.
    with _keeping(pair, _KEPT_S), JoinedNamespace(client.host.namespace) as space:
        space.run(_begin, client.address, WEB_SERVERS[0], flows, rate)
    ended = time.monotonic()
    there = _count(pair, active)
    eventually(lambda: _count(pair, other(active)) >= _SHARE * there, 10)
    late_s, took_s = time.monotonic() - ended, time.monotonic() - begun
    return Spread(
        active=there,
        standby=_count(pair, other(active)),
        late_s=late_s,
        cpu={box: (_used_s(pair, box) - before[box]) / took_s for box in pair.boxes},
    )


@contextmanager
def _keeping(pair: PairedLab, seconds: int) -> Iterator[None]:
    """Have both kernels remember flows without an answer that begin in the block for so long."""
    for router in pair.lab.routers:
        router.run("sysctl", "-qw", f"{_TIMEOUT}={seconds}")
    try:
        yield
    finally:
        for router in pair.lab.routers:
            router.run("sysctl", "-qw", f"{_TIMEOUT}={_DEFAULT_S}")


def _begin(source: str, server: str, flows: int, rate: float) -> None:
    """Send one datagram of each flow. Raises OSError."""
    begun, sent = time.monotonic(), 0
    for local in _PORTS:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sending:
            sending.bind((source, local))
            for port in range(_FIRST, _FIRST + -(-flows // len(_PORTS))):
                if sent == flows:
                    return
                while sent > rate * (time.monotonic() - begun):
                    time.sleep(_BATCH_S)
                sending.sendto(b"flow", (server, port))
                sent += 1


def _count(pair: PairedLab, box: int) -> int:
    """Return the number of the client's UDP flows in a box's kernel."""
    listing = ("conntrack", "-L", "-p", "udp", "-s", pair.lab.client(CLIENT).address)
    return len(pair.lab.routers[box - 1].run(*listing).stdout.splitlines())


def _used_s(pair: PairedLab, box: int) -> float:
    """Return the CPU seconds of a box's conntrackd."""
    used = 0
    for pid in pair.boxes[box].pids("conntrackd"):
        with open(f"/proc/{pid}/stat") as file:
            fields = file.read().rpartition(")")[2].split()
        used += int(fields[11]) + int(fields[12])  # utime and stime, proc_pid_stat(5)
    return used / _TICKS


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.support.pair_flows", description=__doc__)
    parser.add_argument("--flows", type=int, default=100_000)
    parser.add_argument("--rate", type=float, default=2000.0)
    given = parser.parse_args()
    with paired_lab() as pair:
        address = pair.lab.client(CLIENT).address
        pair.boxes[1].api.post("/rules", {"ip": address, "target_node": "DIRECT"})
        print(spread_flows(pair, given.flows, given.rate))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Ping times of a saturated client: with the queue that limits have here, and with a pfifo.

The client is limited to 2 Mbps both ways and kept busy by TCP flows; beside them it pings the
server ten times a second. The kernel is the running one (1 minute), or Debian's, booted under QEMU
(5 minutes).
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Final

from bench.arguments import Arguments
from bench.figures import keep, percentile, show
from egressd.planner.shaping import shape
from tests.support.shaping import SERVER, Site, limit, start_tcp
from tests.vm import boot

VM: Final = "vm"
KBPS: Final = 2_000
CLIENT: Final = "10.77.1.2"
PINGS: Final = 80
SECONDS: Final = 12.0
_MODULES: Final = ("bridge", "veth", "ifb", "sch_htb", "sch_tbf", "nf_tables", "nft_fwd_netdev")
"""Modules that the kernel loads by itself on a system that has a module loader."""

Rows = dict[str, dict[str, float | str]]


def main() -> None:
    """Measure here, or in a VM."""
    arguments = Arguments("ping", __doc__)
    text = "measure on Debian's kernel instead of the running one"
    arguments.add_argument("place", nargs="?", type=place, metavar="vm", help=text)
    given = arguments.read()
    if given.place == VM:
        with tempfile.TemporaryDirectory() as shared:
            print(boot.run("bench.ping", Path(shared), timeout_s=600))
        return
    subprocess.run(["modprobe", "-qa", *_MODULES], check=False)
    rows = measure()
    show(f"ping through a client saturated at {KBPS / 1000:g} Mbps", rows)
    keep("ping", rows, given.json)


def place(text: str) -> str:
    """Return `VM`, or the folder that `tests.vm.boot` names there. Raises ValueError."""
    if text != VM and not Path(text).is_dir():
        raise ValueError(text)
    return text


def measure() -> Rows:
    """Return round trips in ms, by queue and kind of load."""
    rows: Rows = {}
    with Site() as site:
        site.limit({CLIENT: limit(1, KBPS, KBPS)})
        rows["idle"] = row(ping(site))
        for queue in dict.fromkeys((best_queue(site), "pfifo")):
            use(site, queue)
            for way, upload in (("up", True), ("down", False)):
                for flows in (1, 8):
                    rows[f"{queue}, {way}, TCP {flows}"] = row(loaded(site, upload, flows))
    return rows


def best_queue(site: Site) -> str:
    """Return the kind of queue that the limit was given."""
    shown = site.router.shell("tc qdisc show dev egressd-up0")
    (found,) = re.findall(r"qdisc (\w+) \S+ parent 6500:1\b", shown)
    return str(found)


def use(site: Site, queue: str) -> None:
    """Put a queue of this kind beneath both classes, unless there is one."""
    if queue == best_queue(site):
        return
    for device in ("egressd-up0", "egressd-down0"):
        site.router.shell(
            f"tc qdisc del dev {device} parent 6500:1;"
            f"tc qdisc add dev {device} parent 6500:1 handle 1: {queue} limit {shape(KBPS).queue}"
        )


def loaded(site: Site, upload: bool, flows: int) -> list[float]:
    wait = start_tcp(site.client, site.server, CLIENT, upload=upload, flows=flows, seconds=SECONDS)
    found = ping(site, after_s=2)
    wait()
    return found


def ping(site: Site, after_s: float = 0) -> list[float]:
    """Return round trips in ms."""
    command = f"sleep {after_s}; ping -n -i 0.1 -c {PINGS} -W 2 -I {CLIENT} {SERVER}"
    return [float(time) for time in re.findall(r"time=([\d.]+)", site.client.shell(command))]


def row(times: list[float]) -> dict[str, float | str]:
    return {
        "p50 (ms)": median(times),
        "p90 (ms)": percentile(times, 0.9),
        "max (ms)": max(times),
        "lost": float(PINGS - len(times)),
    }


if __name__ == "__main__":
    main()

"""A site with speed limits, and its clients' traffic, as thousandths of a limit."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from egressd.model.plan import Limit
from egressd.netd.kernel.nft import Nft
from egressd.netd.kernel.tc import Shaper
from egressd.planner.shaping import WHOLE_FROM_KBPS
from egressd.planner.topology import Topology
from tests.support.shaping import (
    PORT,
    SERVER,
    Arrivals,
    Site,
    start_tcp,
    tcp,
    udp,
    udp_receive,
    udp_send,
)

T = TypeVar("T")

KBPS = 4_000
CLIENT = "10.77.1.2"
HIGH = WHOLE_FROM_KBPS
"""The least limit at which joined packets are taken whole."""
OTHER = "10.77.1.3"
GUEST = "10.78.1.2"
SECONDS = 3.0
GLANCE_S = 1.0
"""Seconds that are enough to see unlimited traffic, which is much faster."""
FULL = range(500, 1021)
"""Goodput in thousandths of the limit. Headers take 35. Of eight TCP flows that have just begun,
much data that has arrived waits for lost segments. A sender with little CPU time on a busy machine
sends less, so the lower bound only distinguishes a limit from a standstill; `bench` measures the
distance to the limit.
"""

WHOLE = range(650, 1021)
"""Goodput of UDP in thousandths, which excludes half of the limit."""


@contextmanager
def without_limits(site: Site) -> Iterator[Site]:
    """Remove the limits of a site before the block, and after it."""
    site.limit({})
    yield site
    site.limit({})


def share(arrivals: Arrivals, kbps: int = KBPS, seconds: float = SECONDS) -> int:
    """Return goodput in thousandths of a limit."""
    return round(arrivals.rate(seconds) / kbps)


def upload(site: Site, source: str = CLIENT) -> Arrivals:
    return start_upload(site, source)()


def download(site: Site, source: str = CLIENT) -> Arrivals:
    return start_download(site, source)()


def start_upload(site: Site, source: str = CLIENT, flows: int = 1) -> Callable[[], Arrivals]:
    client = site.guest if source == GUEST else site.client
    seconds = SECONDS + 0.5
    return start_tcp(client, site.server, source, upload=True, flows=flows, seconds=seconds)


def start_download(site: Site, source: str = CLIENT, flows: int = 1) -> Callable[[], Arrivals]:
    return start_tcp(
        site.client,
        site.server,
        source,
        upload=False,
        flows=flows,
        seconds=SECONDS + 0.5,
        port=PORT + 1,
    )


def is_fast(site: Site, source: str = CLIENT, *, upload: bool, flows: int = 1) -> bool:
    """True if TCP reaches ten times the limits of these tests."""
    arrived = tcp(
        site.client, site.server, source, upload=upload, flows=flows, seconds=GLANCE_S + 0.2
    )
    return share(arrived, seconds=GLANCE_S) > 10_000


def send_up(
    site: Site, kbps: float, *sources: str, seconds: float = SECONDS
) -> dict[int, Arrivals]:
    pairs = [(source, SERVER) for source in sources]
    return udp(site.client, site.server, pairs, kbps=kbps, seconds=seconds)


def send_down(
    site: Site, kbps: float, *targets: str, seconds: float = SECONDS
) -> dict[int, Arrivals]:
    pairs = [(SERVER, target) for target in targets]
    return udp(site.server, site.client, pairs, kbps=kbps, seconds=seconds)


def send_both(site: Site, up_kbps: float, down_kbps: float) -> tuple[Arrivals, Arrivals]:
    """Send UDP from the client and to it, both at the same time, and return the arrivals."""
    sends = ((up_kbps, (CLIENT, SERVER)), (down_kbps, (SERVER, CLIENT)))
    arriving = [end.start(udp_receive, SECONDS + 1) for end in (site.server, site.client)]
    sending = [
        end.start(udp_send, [pair], kbps, SECONDS)
        for end, (kbps, pair) in zip((site.client, site.server), sends, strict=True)
    ]
    for each in sending:
        each.result()
    up, down = (each.result()[0] for each in arriving)
    return up, down


def in_router(site: Site, function: Callable[[Shaper], T], before: dict[str, Limit]) -> T:
    """Call `function` with a shaper that has put `before` in force."""
    return site.router.run(with_shaper, function, before, site.topology)


def with_shaper(function: Callable[[Shaper], T], before: dict[str, Limit], topology: Topology) -> T:
    shaper = Shaper(Nft())
    shaper.sync(before, topology)
    return function(shaper)


def mean_packet(site: Site, device: str) -> float:
    """Return the mean length of the packets that a device of the router has been sent, in bytes."""
    ((shown,),) = (json.loads(site.router.shell(f"ip -j -s link show dev {device}")),)
    received = shown["stats64"]["rx"]
    return float(received["bytes"] / received["packets"])


def classes(device: str = "egressd-up0") -> dict[str, str]:
    """Return class -> its rate and its sent bytes, as in tc."""
    found = {}
    for text in shell(f"tc -s class show dev {device}").split("class htb ")[1:]:
        words = text.split()
        rate, sent = (words[words.index(word) + 1] for word in ("rate", "Sent"))
        found[words[0]] = f"{rate}, {sent} bytes"
    return found


def shell(command: str) -> str:
    done = subprocess.run(["sh", "-ec", command], check=True, capture_output=True, text=True)
    return done.stdout

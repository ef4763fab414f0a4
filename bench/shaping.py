"""Speed limits: the goodput, the cost for other clients, and the duration of changes.

All parts take 15 minutes. The router is one of plain forwarding with only the limits added,
so that the measurement shows their effect. Shares are of the limit; goodput is payload that
arrived, in 10 seconds.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median

from bench.arguments import Arguments
from bench.figures import keep, percentile, show, spread
from egressd.model.plan import Limit, Patch
from egressd.netd.kernel.nft import Nft
from egressd.netd.kernel.tc import Shaper
from egressd.planner.shaping import LINK_HEADER_BYTES
from tests.support.netns import Namespace
from tests.support.shaping import (
    PAYLOAD,
    SERVER,
    TOPOLOGY,
    Arrivals,
    Site,
    limit,
    tcp,
    udp,
    udp_receive,
    udp_send,
)

SECONDS = 10.0
GOODPUT = "goodput"
LIMITS_KBPS = (256, 2_000, 20_000, 200_000)
CLIENT = "10.77.1.2"
FREE = "10.77.1.3"
CLIENTS = 2_000
CLIENTS_KBPS = 128
RULES = 10_000
CHANGES = 1_000
BUSY = 200

Rows = dict[str, dict[str, float | str]]


def main() -> None:
    """Measure the parts that the command line names, or all."""
    arguments = Arguments("shaping", __doc__)
    arguments.add_argument(
        "parts", nargs="*", type=part_or_limit, metavar="PART|KBPS",
        help=f"the parts to measure, of {', '.join(PARTS)} (default: all);"
        f" limits for {GOODPUT} in place of its four",
    )  # fmt: skip
    given = arguments.read()
    limits = [word for word in given.parts if isinstance(word, int)]
    figures: dict[str, Rows] = {}
    for name in [word for word in given.parts if word in PARTS] or PARTS:
        title, part = PARTS[name]
        figures[name] = goodput(limits or LIMITS_KBPS) if name == GOODPUT else part()
        show(title, figures[name])
    keep("shaping", figures, given.json)


def part_or_limit(text: str) -> str | int:
    """Return a limit as a number. Raises argparse.ArgumentTypeError if it is no part either."""
    if text.isdecimal():
        return int(text)
    if text not in PARTS:
        raise argparse.ArgumentTypeError(f"there is no {text}")
    return text


def clients(count: int) -> list[str]:
    """Return `count` addresses that the client's namespace answers for."""
    return [f"10.77.{128 + n // 250}.{n % 250 + 1}" for n in range(count)]


# --- Goodput. --------------------------------------------------------------------------------


def goodput(limits: Sequence[int] = LIMITS_KBPS) -> Rows:
    """Measure one client under each limit: TCP of one flow and of eight, UDP of 1.5 times the
    limit.
    """
    rows: Rows = {}
    with Site() as plain, Site() as engine:
        engine.intercept()
        for kbps in limits:
            for site in (plain, engine):
                site.limit({CLIENT: limit(1, kbps, kbps)})
            for way, upload in (("up", True), ("down", False)):
                row = rows[f"{kbps:,} Kbps {way}"] = {}
                for flows in (1, 8):
                    row[f"TCP {flows}"] = share(tcp_share(plain, upload, flows), kbps)
                row["TCP 1, TPROXY"] = share(tcp_share(engine, upload, 1), kbps)
                row["UDP"], row["UDP, most in a second"] = udp_shares(plain, upload, kbps)
                print(way, kbps, row, file=sys.stderr)
    return rows


def tcp_share(site: Site, upload: bool, flows: int) -> Arrivals:
    is_engine = site.router.shell("nft list tables").count("engine") > 0
    server = site.router if is_engine else site.server
    return tcp(
        site.client,
        server,
        CLIENT,
        upload=upload,
        flows=flows,
        seconds=SECONDS + 1,
        transparent=is_engine,
    )


def udp_shares(site: Site, upload: bool, kbps: float) -> tuple[float, float]:
    """Return the goodput of a client that sends 1.5 times its limit, and the most in any second.

    The first is counted by the receiver's kernel, since a busy machine's user space misses packets.
    """
    ends, pair = (site.client, site.server), (CLIENT, SERVER)
    if not upload:
        ends, pair = ends[::-1], pair[::-1]
    counting = ends[1].start(count_udp, SECONDS)
    arrived = udp(*ends, [pair], kbps=kbps * 1.5, seconds=SECONDS + 1)
    return counting.result() / kbps / 1000, arrived[0].peak() / kbps / 1000


def count_udp(seconds: float) -> float:
    """Return the payload, in bit/s, of the UDP that arrives in `seconds` from the first
    packet on.
    """
    before = arrived_on_eth0()
    while arrived_on_eth0() < before + PAYLOAD:
        time.sleep(0.005)
    begun, before = time.monotonic(), arrived_on_eth0()
    time.sleep(seconds)
    return (arrived_on_eth0() - before) * 8 / (time.monotonic() - begun)


def arrived_on_eth0() -> int:
    """Return bytes of payload, counting all packets as UDP."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()
    (found,) = (line.split() for line in lines if line.lstrip().startswith("eth0:"))
    size, packets = int(found[1]), int(found[2])
    return size - packets * (LINK_HEADER_BYTES + 28)


def share(arrivals: Arrivals, kbps: float) -> float:
    """Return the goodput over 10 s as a share of the limit."""
    return arrivals.rate(SECONDS) / kbps / 1000


def many() -> Rows:
    """Measure 2,000 limited clients that all send more UDP than their limit, at the same time."""
    rows: Rows = {}
    addresses = clients(CLIENTS)
    with Site() as site:
        site.limit({ip: limit(n, CLIENTS_KBPS, CLIENTS_KBPS) for n, ip in enumerate(addresses, 1)})
        for way in ("up", "down"):
            pairs = [(ip, SERVER) if way == "up" else (SERVER, ip) for ip in addresses]
            ends = (site.client, site.server) if way == "up" else (site.server, site.client)
            arrived = udp(*ends, pairs, kbps=CLIENTS_KBPS * 1.2, seconds=SECONDS + 0.5)
            shares = [share(one, CLIENTS_KBPS) for one in arrived.values()]
            rows[way] = {
                **spread(shares),
                "p1": percentile(shares, 0.01),
                "most in a second": max(a.peak() for a in arrived.values()) / CLIENTS_KBPS / 1000,
            }
    return rows


# --- The cost for other clients. -------------------------------------------------------------


def beside() -> Rows:
    """Measure a client without a limit: plain forwarding, egressd's table, the table and 10,000
    limits.

    TCP is measured by throughput. Small packets are measured by the CPU time of each packet's whole
    way, which is spent in the sender's `send`, since that does not change on a busy machine.
    """
    free = {FREE: limit(1)}
    limited = {f"10.{n >> 8}.{n & 255}.1": limit(n, 1000, 1000) for n in range(2, RULES + 2)}
    with ExitStack() as stack:
        sites = [stack.enter_context(Site()) for _ in range(3)]
        sites[1].limit(free)
        sites[2].limit({**free, **limited})
        for site in sites:
            for host in (site.client, site.server):
                host.shell(DISCARD)
            stack.enter_context(iperf_server(site.server))
        rows = {}
        for name, rounds, measure in (
            ("TCP up (Gbit/s)", 7, iperf),
            ("TCP down (Gbit/s)", 7, lambda site: iperf(site, "-R")),
            ("64-byte packet up (ns)", 40, lambda site: site.client.run(spend, FREE, SERVER)),
            ("64-byte packet down (ns)", 40, lambda site: site.server.run(spend, SERVER, FREE)),
        ):
            samples = [[measure(site) for site in sites] for _ in range(rounds)]
            rows[name] = compared(samples, is_time="ns" in name)
            print(name, rows[name], file=sys.stderr)
    return rows


DISCARD = """
nft add table inet discard
nft add chain inet discard input '{ type filter hook input priority 0; }'
nft add rule inet discard input udp dport 9 drop
"""


def compared(samples: list[list[float]], *, is_time: bool) -> dict[str, float | str]:
    """Return the best of each: other load on the machine can only make a sample worse."""
    best = [percentile(one, 0.1 if is_time else 0.9) for one in zip(*samples, strict=True)]
    speed = [1 / one if is_time else one for one in best]
    return {
        "plain": best[0],
        "no limits": best[1],
        f"{RULES:,} limits": best[2],
        "limits / none": speed[2] / speed[1],
        "limits / plain": speed[2] / speed[0],
    }


def spend(source: str, target: str) -> float:
    """Return the CPU time of a small packet, in ns, until it is dropped on the other side."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind((source, 0))
        opened.connect((target, 9))
        data = bytes(36)
        samples = []
        for _ in range(4):
            begun = time.process_time_ns()
            for _ in range(2500):
                opened.send(data)
            samples.append((time.process_time_ns() - begun) / 2500)
    return min(samples)


@contextmanager
def iperf_server(server: Namespace) -> Iterator[None]:
    argv = ["nsenter", f"--net={server.path}", "iperf3", "-s", "-B", SERVER]
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(0.5)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def iperf(site: Site, *options: str) -> float:
    """Return the rate that arrived in two seconds, in Gbit/s."""
    argv = ["nsenter", f"--net={site.client.path}"]
    argv += ["iperf3", "-c", SERVER, "-B", FREE, "-t", "2", "-J", *options]
    done = subprocess.run(argv, capture_output=True, check=True, text=True)
    return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 1e9)


# --- Changes. --------------------------------------------------------------------------------


def changes() -> Rows:
    """Raise and lower 1,000 limits while 200 of the clients send more than their limits."""
    addresses = clients(CHANGES)
    before = {ip: limit(n, 256, 256) for n, ip in enumerate(addresses, 1)}
    after = {ip: limit(n, 384, 384) for n, ip in enumerate(addresses, 1)}
    rows: Rows = {}
    for name, one_by_one in (("one by one", True), ("in one change", False)):
        with Site() as site:
            site.limit(before)
            busy = [(ip, SERVER) for ip in addresses[:BUSY]]
            far = site.server.start(udp_receive, 12)
            sending = site.client.start(udp_send, busy, 500, 11)
            time.sleep(4)
            took = site.router.run(change_all, before, after, one_by_one)
            time.sleep(2)
            took_back = site.router.run(change_all, after, before, one_by_one)
            arrived = far.result()
            sending.result()
        rows[name] = {
            "raised (s)": took,
            "lowered (s)": took_back,
            "most in a second / higher limit": max(a.peak() for a in arrived.values()) / 384_000,
            "busy clients": float(len(arrived)),
        }
    return rows


def change_all(before: dict[str, Limit], after: dict[str, Limit], one_by_one: bool) -> float:
    shaper = Shaper(Nft())
    shaper.sync(before, TOPOLOGY)
    begun = time.perf_counter()
    if one_by_one:
        for ip, wanted in after.items():
            shaper.change(Patch(put={ip: wanted}))
    else:
        shaper.change(Patch(put=after))
    return time.perf_counter() - begun


def times() -> Rows:
    """Measure the parts of the work among 10,000 limited rules."""
    with Site() as site:
        return site.router.start(time_all).result(300)


def time_all() -> Rows:
    limits = {f"10.{n >> 8}.{n & 255}.1": limit(n, 1000, 1000) for n in range(1, RULES + 1)}
    shaper = Shaper(Nft())
    rows: Rows = {}
    for name, call in {
        "all limits, from nothing": lambda: shaper.sync(limits, TOPOLOGY),
        "all limits, nothing to do": lambda: shaper.sync(limits, TOPOLOGY),
        "all limits, taken over by another netd": lambda: Shaper(Nft()).sync(limits, TOPOLOGY),
        "counters of all rules": shaper.counters,
    }.items():
        rows[name] = {"ms": milliseconds(call)}
    few = list(limits)[:300]
    changed = [{ip: limit(limits[ip].number, 900, 900)} for ip in few]
    fresh = [{f"10.250.{n >> 8}.{n & 255}": limit(RULES + n, 900, 900)} for n in range(1, 301)]
    for name, samples in {
        "look": [milliseconds(lambda: shaper.refresh(TOPOLOGY)) for _ in few],
        "one limit's rate": [put(shaper, one) for one in changed],
        "one limit more": [put(shaper, one) for one in fresh],
        "one limit less": [put(shaper, {}, *one) for one in fresh],
    }.items():
        rows[name] = {"ms": median(samples), "p99": percentile(samples, 0.99)}
    return rows


def put(shaper: Shaper, limits: dict[str, Limit], *drop: str) -> float:
    return milliseconds(lambda: shaper.change(Patch(put=limits, drop=drop)))


def milliseconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return (time.perf_counter() - begun) * 1000


PARTS: Mapping[str, tuple[str, Callable[[], Rows]]] = {
    GOODPUT: ("goodput as a share of the limit", goodput),
    "clients": (f"{CLIENTS:,} clients at once, shares of {CLIENTS_KBPS} Kbps each", many),
    "beside": ("an unlimited client beside limited ones", beside),
    "changes": (f"{CHANGES:,} limits changed under load", changes),
    "times": (f"among {RULES:,} limited rules", times),
}

if __name__ == "__main__":
    main()

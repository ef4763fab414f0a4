"""The cost of a long whitelist: for connections, for saving it, and in the engine's memory.

The same connections are timed under whitelists of different lengths, which take turns. A client of
the kernel (its target is an interface) and one of the engine (a node) each make requests to a
server that is not listed; domain entries make both inspect the hello.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from statistics import median

from bench.arguments import Arguments
from bench.figures import keep, percentile, show
from bench.startup import TARGETS, prepare
from egressd.netd.kernel.memory import resident
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec

ENTRIES = 10_000
ROUNDS = 4
SAMPLES = 100
SERVER = "203.0.113.10"
LENGTHS = {
    "none": ("", ""),
    "1 domain": ("listed.test", ""),
    f"{ENTRIES:,} CIDRs": (
        "",
        "\n".join(f"100.{64 + n // 256}.{n % 256}.0/25" for n in range(ENTRIES)),
    ),
    f"{ENTRIES:,} domains": (
        "\n".join(f"host{n}.example{n % 97}.test" for n in range(ENTRIES)),
        "",
    ),
}
WAYS = {"kernel, http": (2, "http"), "engine, http": (1, "http"), "kernel, https": (2, "https"),
        "engine, https": (1, "https")}  # fmt: skip


def save(lab: Lab, domains: str, ips: str) -> float:
    """Return the milliseconds of ``PUT /whitelist``."""
    begun = time.perf_counter()
    lab.api.put("/whitelist", {"domains": domains, "ips": ips, "node": "DIRECT"})
    return (time.perf_counter() - begun) * 1000


def connections(lab: Lab) -> dict[str, list[float]]:
    """Return the milliseconds from the connect to the end of a small answer."""
    samples = {}
    for name, (client, scheme) in WAYS.items():
        replies = [lab.client(client).http(f"{scheme}://{SERVER}/") for _ in range(SAMPLES)]
        assert all(reply.ok for reply in replies)
        samples[name] = [reply.seconds * 1000 for reply in replies]
    return samples


def few(lab: Lab) -> dict[str, dict[str, float]]:
    """Measure connections under each whitelist, with one target of each kind."""
    lab.api.post("/nodes", lab.nodes["socks5"].draft())
    lab.api.post("/rules", {"ip": lab.client(1).address, "target_node": "socks5"})
    lab.api.post("/rules", {"ip": lab.client(2).address, "target_node": "Interface:wan2"})
    samples: dict[str, dict[str, list[float]]] = {
        length: {way: [] for way in WAYS} for length in LENGTHS
    }
    saved: dict[str, list[float]] = {length: [] for length in LENGTHS}
    for _ in range(ROUNDS):
        for length, entries in LENGTHS.items():
            saved[length].append(save(lab, *entries))
            for way, times in connections(lab).items():
                samples[length][way] += times
    rows = {
        f"{way}, {name}": {length: pick(ways[way]) for length, ways in samples.items()}
        for way in WAYS
        for name, pick in (("p50", median), ("p99", lambda times: percentile(times, 0.99)))
    }
    return {**rows, "saving it": {length: median(times) for length, times in saved.items()}}


def many(lab: Lab) -> Mapping[str, dict[str, float]]:
    """Measure saving, and the engine's memory, with many targets in use."""
    prepare(lab)
    rows = {}
    for length, entries in LENGTHS.items():
        saved = save(lab, *entries)
        engine = resident(lab.device.pids("engine.worker"))
        rows[length] = {"save (ms)": saved, "engine (MB)": engine / 1e6}
    return rows


def main() -> None:
    """Measure with one target of each kind, then with many."""
    given = Arguments("whitelist", __doc__).read()
    with Lab(LabSpec(nodes=("socks5",))) as lab:
        lab.start_egressd()
        connecting = few(lab)
    show("connections under a whitelist (ms)", connecting)
    with Lab(LabSpec(nodes=())) as lab:
        lab.start_egressd()
        saving = many(lab)
    show(f"saving a whitelist, {TARGETS} targets in use", saving)
    keep("whitelist", {"connections": connecting, "targets": saving}, given.json)


if __name__ == "__main__":
    main()

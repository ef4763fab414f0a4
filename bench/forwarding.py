"""Forwarding through egressd against the same network's plain Linux forwarding.

Two labs of the same make stand side by side: one forwards and masquerades like any box, the
other runs egressd with many rules. Rounds alternate between them, and so does who begins. The
two ends of iperf3 have a core each, since the scheduler's choice otherwise weighs more than the
router. TCP throughput is from a LAN client to a server behind the WAN; packets a second are
those of a UDP flood of small datagrams that arrive.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median

from bench.changes import fill
from bench.figures import keep, show
from egressd.lab.lab import Lab
from egressd.lab.netns import exec_argv
from egressd.lab.spec import LabSpec

ROUNDS = 7
SECONDS = 3
RULES = 10_000
SERVER = "203.0.113.10"


@contextmanager
def iperf_server(lab: Lab) -> Iterator[None]:
    """An iperf3 server behind the WANs."""
    argv = exec_argv(lab.internet.namespace, ["iperf3", "-s", "-B", SERVER])
    process = subprocess.Popen(argv, stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def iperf(lab: Lab, *options: str) -> dict[str, float]:
    """One run from client1; the summary of what arrived."""
    argv = ["iperf3", "-c", SERVER, "-A", "0,1", "-t", str(SECONDS), "-J", *options]
    client = lab.client(1).host.namespace
    result = subprocess.run(exec_argv(client, argv), capture_output=True, check=True, text=True)
    end = json.loads(result.stdout)["end"]
    if "sum" in end and "lost_packets" in end["sum"]:
        arrived = end["sum"]["packets"] - end["sum"]["lost_packets"]
        return {"rate": arrived / end["sum"]["seconds"]}
    return {"rate": end["sum_received"]["bits_per_second"] / 1e9}


def pair(plain: Lab, device: Lab, number: int, options: Sequence[str]) -> tuple[float, float]:
    """One round: the plain router's figure and egressd's, in turns first."""
    if number % 2:
        second = iperf(device, *options)["rate"]
        return iperf(plain, *options)["rate"], second
    return iperf(plain, *options)["rate"], iperf(device, *options)["rate"]


KINDS = {
    "TCP, 1 flow (Gbit/s)": (),
    "TCP, 8 flows (Gbit/s)": ("-P", "8"),
    "TCP, download (Gbit/s)": ("-R",),
    "UDP, 64 bytes (packets/s)": ("-u", "-l", "64", "-b", "0"),
}


def main() -> None:
    """Each kind of traffic, for each target, in alternating rounds."""
    rows: dict[str, dict[str, float]] = {}
    spec = LabSpec(nodes=("ss",), clients=21)
    with Lab(spec) as plain, Lab(spec) as device:
        device.start_egressd()
        fill(device, RULES)
        rule = device.api.get("/rules")["data"][0]
        with plain.plain_router(), iperf_server(plain), iperf_server(device):
            for target in ("DIRECT", "Interface:wan1"):
                body = {**rule, "target_node": target}
                for field in ("id", "created_at", "updated_at"):
                    body.pop(field)
                device.api.put(f"/rules/{rule['id']}", body)
                for kind, options in KINDS.items():
                    samples = [pair(plain, device, number, options) for number in range(ROUNDS)]
                    rows[f"{target}, {kind}"] = {
                        "plain": median(p for p, _ in samples),
                        "egressd": median(e for _, e in samples),
                        "ratio min": min(e / p for p, e in samples),
                        "ratio median": median(e / p for p, e in samples),
                        "ratio max": max(e / p for p, e in samples),
                    }
                    print(kind, target, rows[f"{target}, {kind}"], file=sys.stderr)
    show(f"forwarding with {RULES:,} rules against plain forwarding", rows)
    keep("forwarding", rows)


if __name__ == "__main__":
    main()

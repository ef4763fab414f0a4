"""A start from a cold stop until all rules are in force, and the memory of the processes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence

from bench.arguments import Arguments
from bench.changes import address
from bench.figures import keep, show
from egressd.netd.kernel.memory import resident
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec

RULES = 10_000
TARGETS = 200
REPEATS = 3
SERVER = "203.0.113.10"


def add_targets(lab: Lab, targets: int) -> list[str]:
    """Add that many proxy servers to the lab, and return their addresses."""
    inbound = {"type": "socks", "listen_port": 1080}
    return lab.add_engine_node("many", [inbound] * targets)


def fill(lab: Lab, addresses: Sequence[str], rules: int) -> None:
    """Import the servers as nodes, and `rules` rules that use all of them."""
    targets = len(addresses)
    rows = [f"{address},1080,,,node{n}" for n, address in enumerate(addresses)]
    lab.api.post(
        "/nodes/import",
        {
            "type": "socks5",
            "text": "\n".join(rows),
            "replace": True,
            "group": "",
            "autoNodeName": False,
            "autoNodeNameStartIndex": 1,
        },
    )
    rows = [f"{lab.client(1).address},node{targets - 1},"]
    rows += [f"{address(n)},node{n % targets}," for n in range(rules - 1)]
    answer = lab.api.post("/rules/import", {"text": "\n".join(rows), "replace": True})
    assert answer["imported"] == rules, json.dumps(answer)


def prepare(lab: Lab) -> str:
    """Import `RULES` rules for `TARGETS` targets in use, and return the last target's exit
    address.
    """
    addresses = add_targets(lab, TARGETS)
    fill(lab, addresses, RULES)
    return addresses[-1]


def main() -> None:
    """Stop, start, and wait until the last target's client gets through."""
    given = Arguments("startup", __doc__).read()
    rows = {}
    with Lab(LabSpec(nodes=())) as lab:
        lab.start_egressd()
        exit_address = prepare(lab)
        for number in range(1, REPEATS + 1):
            lab.device.stop()
            begun = time.monotonic()
            lab.device.program.start()
            while lab.client(1).http(f"http://{SERVER}/", timeout=0.2).seen != exit_address:
                pass
            in_force = time.monotonic() - begun
            lab.device.wait_healthy()
            pids = {
                part: lab.device.pids(part)
                for part in ("egressd.app netd", "egressd.app api", "engine.worker")
            }
            rows[f"start {number}"] = {
                "traffic flows (s)": in_force,
                "healthy (s)": time.monotonic() - begun,
                **{
                    f"{part.split()[-1].removeprefix('engine.')} (MB)": resident(found) / 1e6
                    for part, found in pids.items()
                },
            }
    show(f"cold start, {RULES:,} rules, {TARGETS} targets in use", rows)
    keep("startup", rows, given.json)


if __name__ == "__main__":
    main()

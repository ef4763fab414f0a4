"""One node's password changes 1,000 times under load.

499 other clients hold a connection each, spread over 49 other nodes, and use it all the while; the
node's own client keeps requesting pages. No other client may be cut, the node's client must get
through after each change, and the memory and descriptors of the processes must not grow.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from bench.arguments import Arguments
from bench.figures import keep, percentile
from egressd_lab.client import Connection
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec

TIMES = 1000
NODES = 50
CLIENTS = 500
CIPHER = "2022-blake3-aes-128-gcm"
WEB = "http://203.0.113.10/"
KEYS = ("AAAAAAAAAAAAAAAAAAAAAA==", "AQEBAQEBAQEBAQEBAQEBAQ==")
"""The passwords. The node's server accepts both: one is for each of its users."""
SERVER_KEY = "AgICAgICAgICAgICAgICAg=="
PARTS = ("egressd.app netd", "egressd.app api", "egressd.netd.engine.worker")


def config(address: str, key: str) -> str:
    fields = {"server": address, "port": 8388, "cipher": CIPHER}
    return json.dumps({**fields, "password": f"{SERVER_KEY}:{key}"})


def usage(lab: Lab) -> dict[str, tuple[int, int]]:
    """Return the proportional memory in KiB, and the descriptors, of each kind of egressd's
    processes.
    """
    result = {}
    for part in PARTS:
        pids = lab.device.pids(part)
        memory = sum(_pss(pid) for pid in pids)
        files = sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids)
        result[part] = (memory, files)
    return result


def _pss(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


def cut(connections: list[Connection], text: str) -> int:
    return sum(not connection.exchange(text).ok for connection in connections)


def main() -> None:
    """Measure, and print the figures as JSON."""
    arguments = Arguments("rotation", __doc__)
    arguments.add_argument(
        "times", nargs="?", type=int, default=TIMES, metavar="TIMES",
        help=f"changes of the password (default: {TIMES})",
    )  # fmt: skip
    given = arguments.read()
    times = given.times
    users = [{"name": f"u{n}", "password": key} for n, key in enumerate(KEYS)]
    inbound: dict[str, Any] = {
        "type": "shadowsocks",
        "listen_port": 8388,
        "method": CIPHER,
        "password": SERVER_KEY,
        "users": users,
    }
    with Lab(LabSpec(clients=CLIENTS, nodes=())) as lab:
        addresses = lab.add_engine_node("nodes", [inbound] * NODES)
        lab.start_egressd()
        for number, address in enumerate(addresses):
            draft = {"name": f"n{number}", "protocol": "ss", "group": ""}
            lab.api.post("/nodes", {**draft, "config_json": config(address, KEYS[0])})
        rows = [f"{lab.client(1).address},n0,"]
        rows += [
            f"{client.address},n{1 + n % (NODES - 1)}," for n, client in enumerate(lab.clients[1:])
        ]
        lab.api.post("/rules/import", {"text": "\n".join(rows), "replace": True})
        others = [client.connect() for client in lab.clients[1:]]
        assert cut(others, "before") == 0
        key = lab.api.get("/nodes")["data"][0]["id"]
        lost = failed = 0
        changes: list[float] = []
        samples = []
        for number in range(times):
            body = {"name": "n0", "protocol": "ss", "group": ""}
            password = KEYS[(number + 1) % 2]
            begun = time.monotonic()
            lab.api.put(f"/nodes/{key}", {**body, "config_json": config(addresses[0], password)})
            changes.append(time.monotonic() - begun)
            reply = lab.client(1).http(WEB)
            failed += reply.seen != addresses[0]
            # Ten of the others at a time: each is used every fiftieth change.
            first = number * 10 % len(others)
            lost += cut(others[first : first + 10], f"change {number}")
            if number % max(1, times // 5) == times // 10:
                samples.append(usage(lab))
        lost += cut(others, "after")
        result = {
            "changes": times,
            "a change, p50 and p99 (ms)": [
                round(percentile(changes, share) * 1000, 1) for share in (0.5, 0.99)
            ],
            "the node's client failed": failed,
            "others cut": lost,
            "memory (KiB) and descriptors": {
                part: [sample[part] for sample in samples] for part in PARTS
            },
        }
        print(json.dumps(result))
    keep("rotation", result, given.json)


if __name__ == "__main__":
    main()

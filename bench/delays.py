"""``delay/all`` of 1,000 nodes of which half are dead.

A quarter refuse connections, a quarter are black holes; the rest are real Shadowsocks servers.
During the measurement a client of a living node keeps requesting a page: its waiting times show
whether running traffic is disturbed.
"""

from __future__ import annotations

import json
import threading
import time
from statistics import median
from typing import Any

from bench.arguments import Arguments
from bench.figures import keep
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec

NODES = 1000
TIMEOUT_MS = 8000
WEB = "http://203.0.113.10/"
BLACK_HOLE = "198.19.255.1"
CIPHER = "aes-128-gcm"
PASSWORD = "open-sesame"


def row(number: int, living: list[str]) -> str:
    """Return an import row: nodes 1 and 2 of four live, 3 refuses, 4 does not answer."""
    kind, place = number % 4, number // 4 * 2 + number % 4
    server, port = (living[place], 8388) if kind < 2 else (living[0], 1)
    if kind == 3:
        server = BLACK_HOLE
    return f"{server},{port},{CIPHER},{PASSWORD},n{number}"


def pages(lab: Lab, ending: threading.Event, waits: list[float]) -> None:
    """Request a page again and again, and append the seconds of each request to `waits`."""
    while not ending.is_set():
        reply = lab.client(1).http(WEB)
        assert reply.ok, reply.error
        waits.append(reply.seconds)
        time.sleep(0.05)


def main() -> None:
    """Measure, and print the figures as JSON."""
    given = Arguments("delays", __doc__).read()
    inbound: dict[str, Any] = {
        "type": "shadowsocks",
        "listen_port": 8388,
        "method": CIPHER,
        "password": PASSWORD,
    }
    with Lab(LabSpec(nodes=())) as lab:
        living = lab.add_engine_node("living", [inbound] * (NODES // 2))
        lab.internet.run("ip", "route", "add", "blackhole", BLACK_HOLE)
        lab.start_egressd()
        text = "\n".join(row(number, living) for number in range(NODES))
        body = {"type": "ss", "text": text, "replace": True, "group": ""}
        more = {"autoNodeName": False, "autoNodeNameStartIndex": 1}
        assert lab.api.post("/nodes/import", body | more)["imported"] == NODES
        lab.api.post("/rules", {"ip": lab.client(1).address, "target_node": "n0"})
        waits: list[float] = []
        ending = threading.Event()
        client = threading.Thread(target=pages, args=(lab, ending, waits))
        client.start()
        time.sleep(2)
        before = median(waits)
        waits.clear()
        path = f"/svc/api/v1/nodes/delay/all?url={WEB}generate_204&timeout={TIMEOUT_MS}"
        begun = time.monotonic()
        answer = lab.api.ask("GET", path, timeout=120)
        took = time.monotonic() - begun
        ending.set()
        client.join()
        delays = answer.body["data"]
        alive = sorted(delay for delay in delays.values() if delay > 0)
        result = {
            "nodes": len(delays),
            "alive": len(alive),
            "seconds": round(took, 2),
            "timeout_s": TIMEOUT_MS / 1000,
            "median_delay_ms": median(alive),
            "a client's page before (ms)": round(before * 1000, 1),
            "a client's page meanwhile, median and worst (ms)": [
                round(median(waits) * 1000, 1),
                round(max(waits) * 1000, 1),
            ],
        }
        print(json.dumps(result))
    keep("delays", result, given.json)


if __name__ == "__main__":
    main()

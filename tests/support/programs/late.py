"""A UDP echo server that answers late: ``python -m tests.support.programs.late ADDRESS PORT``."""

from __future__ import annotations

import heapq
import json
import random
import select
import socket
import sys
import time

LATE_S = (0.05, 0.5)


def main(address: str, port: int) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((address, port))
        print("ready", flush=True)
        due: list[tuple[float, tuple[str, int], bytes]] = []
        while True:
            patience = max(0.0, due[0][0] - time.monotonic()) if due else None
            if select.select([server], [], [], patience)[0]:
                text, caller = server.recvfrom(4096)
                answer = json.dumps({"ip": caller[0]}).encode() + b"\n" + text
                when = time.monotonic() + random.uniform(*LATE_S)
                heapq.heappush(due, (when, caller, answer))
            while due and due[0][0] <= time.monotonic():
                _, caller, answer = heapq.heappop(due)
                server.sendto(answer, caller)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))

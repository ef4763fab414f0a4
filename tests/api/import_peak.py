"""Import a text in a process of its own, and print the cost.

Run with the text on standard input, it prints the status of the answer, the number of imported
nodes, and the bytes by which the process's resident memory grew at its peak.

The request goes through the whole api, with a double in place of netd.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import tempfile
from pathlib import Path

from tests.support.api_device import Device
from tests.support.use_cases import opened_bench

_WARM_UP = "socks5://203.0.113.9:1080#warm\n"


def peak() -> int:
    """Return the largest resident size so far, in bytes (proc_pid_status(5), VmHWM)."""
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024


async def import_text(device: Device, text: str) -> tuple[int, int]:
    """Return the status of the answer, and the number of imported nodes."""
    body = json.dumps({"type": "others", "text": text}, ensure_ascii=False).encode()
    del text
    headers = {"content-type": "application/json"}
    answer = await device.call("POST", "/nodes/import", content=body, headers=headers)
    return answer.status_code, answer.json().get("imported", 0)


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with opened_bench(Path(directory) / "data") as bench:
            await bench.start()
            device = Device(bench)
            await import_text(device, _WARM_UP)
            before = peak()
            text = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
            status, imported = await import_text(device, text)
            print(status, imported, peak() - before)


if __name__ == "__main__":
    asyncio.run(main())

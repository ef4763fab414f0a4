"""Everything is loaded once the application is made: the process gives up its privileges then,
and may not be able to read its own code any more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent

SCRIPT = """
import asyncio, json, socket, sys
import structlog, uvloop
from egressd.api.server import Listener, serve
from egressd.app.preload import preload
from egressd.store.preparation import prepare
from tests.api.conftest import TOKEN, start_device

REQUESTS = [
    ("GET", "/svc/api/v1/system/status", None, 200),
    ("GET", "/svc/api/v1/system/interfaces-with-ip", None, 200),
    ("GET", "/svc/api/v1/rules", None, 200),
    ("POST", "/svc/api/v1/rules", {"ip": "10.0.0.5", "target_node": "DIRECT"}, 200),
    ("POST", "/svc/api/v1/rules", {"ip": 5, "\\ud800": [], "target_node": "\\x00"}, 400),
    ("POST", "/svc/api/v1/rules", "not an object", 400),
    ("DELETE", "/svc/api/v1/rules/99", None, 200),
    ("DELETE", "/svc/api/v1/rules/x", None, 400),
    ("POST", "/svc/api/v1/rules/import", {"text": "10.0.0.6,DIRECT,"}, 200),
    ("POST", "/svc/api/v1/nodes/import", {"type": "others", "text": "name: b, type: ss"}, 200),
    ("GET", "/svc/api/v1/nodes/delay?name=a&timeout=x", None, 400),
    ("GET", "/svc/api/v1/nodes/delay/all", None, 200),
    ("PUT", "/svc/api/v1/whitelist", {"domains": "b.example", "ips": "", "node": "DIRECT"}, 200),
    ("GET", "/svc/api/v1/unknown", None, 403),
    ("GET", "/ops/health", None, 200),
    ("GET", "/ops/metrics", None, 200),
    ("GET", "/ops/backup", None, 200),
    ("POST", "/ops/restore", None, 400),
    ("GET", "/ops/docs", None, 200),
    ("GET", "/ops/openapi.json", None, 200),
    ("GET", "/elsewhere", None, 404),
]


class Refusal:
    refused = []

    def find_spec(self, name, path, target=None):
        self.refused.append(name)
        raise ImportError(name + " is not loaded")


async def ask(port, method, path, body):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    content = b"" if body is None else json.dumps(body).encode()
    writer.write(
        f"{method} {path} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n"
        f"Authorization: Bearer {TOKEN}\\r\\nContent-Type: application/json\\r\\n"
        f"Content-Length: {len(content)}\\r\\n\\r\\n".encode() + content
    )
    answer = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return int(answer.split(b" ", 2)[1])


async def main():
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    bound.listen()
    port = bound.getsockname()[1]
    device = await start_device()
    prepare()
    preload()
    stop = asyncio.Event()
    sys.meta_path.insert(0, Refusal())
    serving = asyncio.create_task(serve(device.app, [Listener(bound)], stop))
    for method, path, body, status in REQUESTS:
        found = await ask(port, method, path, body)
        assert found == status, (method, path, found)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"GET /ops/events HTTP/1.1\\r\\nHost: x\\r\\nAuthorization: Bearer {TOKEN}"
    writer.write(head.encode() + b"\\r\\n\\r\\n")
    await asyncio.wait_for(reader.readuntil(b": listening"), 5)
    await device.events.put(None)
    writer.close()
    stop.set()
    await serving
    print("refused:", *Refusal.refused)


structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
asyncio.Runner(loop_factory=uvloop.new_event_loop).run(main())
"""


def test_nothing_is_loaded_once_requests_are_served() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "refused:"

"""The service under systemd: it starts, crashes, is upgraded, stopped, and started.

``python -m tests.vm.inside.service SHARED ADDRESS`` in a machine of `tests.vm.machine`. Writes the
time of each step to ``SHARED/steps``, a line each: a name and nanoseconds of the wall clock. The
client ADDRESS gets a rule, so that a stop blocks a client.
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from egressd.netd.kernel.memory import available
from egressd.planner import sysctls
from egressd.planner.bounds import descriptors, workers_memory
from tests.vm.boot import ROOT

_API: Final = "egressd-api.service"
_NETD: Final = "egressd-netd.service"
_BLOCK: Final = "egressd-block.service"
_START_S: Final = 900.0
"""Seconds, since an emulated machine needs minutes."""
_LASTS_S: Final = 10.0


def main(shared: Path, address: str) -> None:
    steps = (shared / "steps").open("w", buffering=1)

    def note(step: str) -> None:
        steps.write(f"{step} {time.time_ns()}\n")

    healthy()
    token = subprocess.run(
        [ROOT / ".venv/bin/egressd", "token", "show"], check=True, capture_output=True, text=True
    ).stdout.strip()
    rule = {"ip": address, "target_node": "DIRECT"}
    status, body = ask("POST", "/svc/api/v1/rules", token, rule)
    assert status == 200, body
    assert_room()
    assert_isolated()
    note("running")
    time.sleep(_LASTS_S)
    for service in (_NETD, _API):
        note(f"killed:{service}")
        systemctl("kill", "--signal=KILL", service)
        time.sleep(_LASTS_S)
        healthy()
        assert_isolated()
        note(f"back:{service}")
    note("upgraded")
    systemctl("reload", _NETD)
    systemctl("restart", _API)
    healthy()
    note("back:upgraded")
    time.sleep(_LASTS_S)
    systemctl("stop", _API, _NETD)
    stay_stopped(note)
    for how in ("KILL", "STOP"):  # it is about to be restarted, or handles nothing
        note(f"unheard:{how}")
        systemctl("kill", f"--signal={how}", _NETD)
        systemctl("stop", _API, _NETD)
        while state_of(_BLOCK) != "inactive":  # it stops by itself, after netd
            time.sleep(0.1)
        stay_stopped(note)
    note("done")


def stay_stopped(note: Callable[[str], None]) -> None:
    """Wait for a while, then start, and wait again."""
    note("stopped")
    time.sleep(_LASTS_S)
    note("started")
    systemctl("start", _NETD, _API)
    healthy()
    note("back:started")
    time.sleep(_LASTS_S)


def assert_room() -> None:
    """Check the limits that only exist here: those that no namespace has, and a worker's open
    files.
    """
    for name, least in sysctls.room(os.sysconf("SC_PHYS_PAGES")).items():
        assert int(Path("/proc/sys", name).read_text()) >= least, name
    argv = ["pgrep", "--full", "--newest", "egressd.netd.engine.worker"]
    pid = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    files = next(line.split() for line in limits if line.startswith("Max open files"))
    memory = workers_memory(available(), 2)  # one for clients of nodes, one for clients of services
    assert files[3:5] == [str(descriptors(memory))] * 2, files


def assert_isolated() -> None:
    """Assert that each worker has its own control group, with a limit of memory."""
    argv = ["pgrep", "--full", "egressd.netd.engine.worker"]
    found = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
    for pid in found:
        (group,) = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        path = group.removeprefix("0::/")
        assert path.startswith("system.slice/egressd-"), path
        assert path.endswith(f"-{pid}.scope"), path
        limit = int(Path("/sys/fs/cgroup", path, "memory.max").read_text())
        assert 0 < limit <= available() // 2, limit


def systemctl(*arguments: str) -> None:
    subprocess.run(["systemctl", *arguments], check=True)


def state_of(unit: str) -> str:
    show = ["systemctl", "show", "-P", "ActiveState", unit]
    return subprocess.run(show, check=True, capture_output=True, text=True).stdout.strip()


def healthy() -> None:
    """Wait until the service reports that everything is in force."""
    deadline = time.monotonic() + _START_S
    while True:
        try:
            status, body = ask("GET", "/ops/health")
        except OSError as error:
            status, body = 0, str(error)
        if status == 200:
            return
        assert time.monotonic() < deadline, body
        time.sleep(0.5)


def ask(method: str, path: str, token: str = "", body: object = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", 8787, timeout=60)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    response = connection.getresponse()
    return response.status, response.read().decode()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])

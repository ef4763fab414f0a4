"""A netd or an api that does not react is replaced, while traffic continues."""

from __future__ import annotations

import time

import pytest

from egressd_lab.lab import Lab
from tests.packaging.machine import Machine
from tests.support.device import SERVER, eventually
from tests.support.installed import WEB, install, rule
from tests.support.packages import BEFORE, asked_for

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1200)]

_ALLOWED_S = 30.0
"""Seconds until a process is replaced: 15 of the watchdog, 5 until SIGKILL, and a start."""


@asked_for
@pytest.mark.parametrize("name", ["netd", "api"])
@pytest.mark.parametrize("way", ["signal", "control group"])
def test_p2_a_frozen_process_is_replaced(box: Machine, lab: Lab, name: str, way: str) -> None:
    unit = f"egressd-{name}.service"
    install(box, BEFORE)
    rule(box, lab, 1, "DIRECT")
    routed = lab.client(1).connect(SERVER)
    frozen = main_pid(box, unit)
    if way == "signal":
        box.run("kill", "-STOP", frozen)
    else:
        group = box.run("systemctl", "show", "-P", "ControlGroup", unit).strip()
        box.write(f"/sys/fs/cgroup{group}/cgroup.freeze", "1")
    since = time.monotonic()
    assert routed.exchange("frozen").ok
    assert lab.client(1).http(WEB).status == 200
    assert lab.client(2).http(WEB).status != 200
    eventually(lambda: main_pid(box, unit) not in ("0", frozen), 2 * _ALLOWED_S)
    eventually(lambda: box.state(unit) == "active", 2 * _ALLOWED_S)
    took = time.monotonic() - since
    print(f"{unit}, frozen by its {way}: replaced after {took:.1f} s")
    assert took < _ALLOWED_S
    box.wait_healthy()
    assert routed.exchange("replaced").ok
    assert lab.client(1).http(WEB).status == 200


def main_pid(box: Machine, unit: str) -> str:
    return box.run("systemctl", "show", "-P", "MainPID", unit).strip()


@asked_for
def test_a_busy_process_is_not_replaced(box: Machine, lab: Lab) -> None:
    install(box, BEFORE)
    pids = [main_pid(box, f"egressd-{name}.service") for name in ("netd", "api")]
    spin = "import os, time; end = time.monotonic() + 40\nwhile time.monotonic() < end: pass"
    script = f"for n in 1 2 3 4 5 6 7 8; do python3 -c '{spin}' & done; wait"
    box.run("sh", "-c", script)
    assert [main_pid(box, f"egressd-{name}.service") for name in ("netd", "api")] == pids
    assert [box.state(f"egressd-{name}.service") for name in ("netd", "api")] == ["active"] * 2

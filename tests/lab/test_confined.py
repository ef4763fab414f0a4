"""The two processes as systemd runs them: isolated from each other, netd with few capabilities, and
the API with few kinds of sockets.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from egressd_lab.lab import Lab
from egressd_lab.process import Program
from egressd_lab.spec import LabSpec
from tests.support.device import SERVER, add_nodes, eventually, send
from tests.support.programs import families

pytestmark = pytest.mark.lab

WEB = f"http://{SERVER}/"
FAMILIES = Path(families.__file__)
UNITS = Path(__file__).resolve().parents[2] / "packaging" / "systemd"


def words(unit: str, setting: str) -> list[str]:
    """Return a unit's values of a setting, in one line or several."""
    lines = (UNITS / f"egressd-{unit}.service").read_text().splitlines()
    values = [line.removeprefix(f"{setting}=") for line in lines if line.startswith(f"{setting}=")]
    return " ".join(values).split()


def bounding_set() -> str:
    """Return netd's capabilities in the format of setpriv(1)."""
    names = words("netd", "CapabilityBoundingSet")
    return ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in names)])


@pytest.fixture(scope="module")
def lab(namespaces: None) -> Iterator[Lab]:
    with Lab(LabSpec(nodes=("ss",))) as lab:
        lab.start_egressd()
        lab.device.stop()
        argv = [sys.executable, "-m", "egressd.app"]
        options = ["--config", str(lab.device.config)]
        few = ["setpriv", f"--bounding-set={bounding_set()}", "--no-new-privs"]
        families = ",".join(words("api", "RestrictAddressFamilies"))
        netd = [*few, *argv, "netd", *options]
        api = [sys.executable, str(FAMILIES), families, *argv, "api", *options]
        programs = [
            Program(lab.router.namespace, netd, lab.folder / "netd.log"),
            Program(lab.router.namespace, api, lab.folder / "api.log"),
        ]
        try:
            for program in programs:
                program.start()
            eventually(lambda: lab.api.ask("GET", "/ops/health").status == 200, 60)
            yield lab
        finally:
            for program in reversed(programs):
                program.stop(30)


def test_netd_works_with_the_units_capabilities(lab: Lab) -> None:
    add_nodes(lab)
    send(lab, 1, "ss")
    send(lab, 2, "Interface:wan2")
    lab.api.post("/proxy-services", {"name": "s", "outbound_interface": "wan2", "port": 18_080})
    limited = {"ip": lab.client(3).address, "target_node": "DIRECT", "upload_limit_kbps": 9000}
    lab.api.post("/rules", limited)
    exits = {1: lab.nodes["ss"].address, 2: lab.wan(2).address, 3: lab.wan(1).address}
    for client, address in exits.items():
        assert lab.client(client).http(WEB).seen == address
    connection = lab.client(1).connect()
    send(lab, 1, "Interface:wan2")  # ends the engine's sockets of the client
    assert not connection.exchange("cut").ok
    connection.close()
    assert lab.client(1).http(WEB).seen == lab.wan(2).address
    (pid,) = (p for p in lab.device.pids("egressd.app netd"))
    status = Path(f"/proc/{pid}/status").read_text()
    assert "CapBnd:\t000001ffffffffff" not in status
    assert "NoNewPrivs:\t1" in status


def test_a_killed_worker_is_replaced_with_the_units_capabilities(lab: Lab) -> None:
    send(lab, 1, "ss")
    for pid in lab.device.pids("egressd.netd.engine.worker"):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: lab.client(1).http(WEB, timeout=0.5).seen == lab.nodes["ss"].address, 20)

"""A full disk, and processes that restart on it: clients do not notice."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from egressd.model.errors import Failed
from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.support.device import SERVER, add_nodes, eventually, send
from tests.support.disks import fill, small_disk

pytestmark = pytest.mark.lab

WEB = f"http://{SERVER}/"


@pytest.fixture
def full(namespaces: None, tmp_path: Path) -> Iterator[tuple[Lab, Path]]:
    """Yield a lab whose device's disk is full, with a client by a node; and the file that fills the
    disk.
    """
    with small_disk(tmp_path / "disk") as disk, Lab(LabSpec(nodes=("ss",))) as lab:
        lab.start_egressd({"data": {"dir": str(disk / "data")}})
        add_nodes(lab)
        send(lab, 1, "ss")
        yield lab, fill(disk)
        lab.device.stop()


def is_served(lab: Lab) -> bool:
    return lab.client(1).http(WEB, timeout=0.5).seen == lab.nodes["ss"].address


def is_healthy(lab: Lab) -> bool:
    try:
        return lab.api.ask("GET", "/ops/health").status == 200
    except Failed:
        return False


@pytest.mark.parametrize(
    ("process", "number"),
    [("api", signal.SIGTERM), ("netd", signal.SIGUSR1), ("netd", signal.SIGKILL)],
)
def test_a_process_that_restarts_interrupts_no_client(
    full: tuple[Lab, Path], process: str, number: signal.Signals
) -> None:
    lab, filler = full
    with pytest.raises(Failed, match="full"):
        send(lab, 2, "ss")
    (pid,) = lab.device.pids(f"egressd.app {process}")
    os.kill(pid, number)
    eventually(lambda: pid not in lab.device.pids(f"egressd.app {process}"))
    eventually(lambda: bool(lab.device.pids(f"egressd.app {process}")), 10)
    served = [is_served(lab) for _ in range(20)]
    # The workers hold TPROXY's listeners, so clients do not wait for netd's start.
    assert all(served)
    filler.unlink()
    eventually(lambda: is_healthy(lab), 30)
    send(lab, 2, "ss")
    assert is_served(lab)

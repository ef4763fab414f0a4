"""Python's warnings in the device's own processes: no deprecated calls, no unclosed files."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from egressd_lab.lab import Lab
from egressd_lab.spec import LabSpec
from tests.support.device import add_nodes, clear, eventually, send

pytestmark = pytest.mark.lab


@pytest.fixture
def lab(namespaces: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Return a lab whose device logs all of Python's warnings, those of unclosed files included."""
    monkeypatch.setenv("PYTHONWARNINGS", "always")
    with Lab(LabSpec(wans=2, nodes=("socks5", "ss"))) as lab:
        lab.start_egressd()
        yield lab


def warnings(lab: Lab) -> list[str]:
    """Return the warnings in the logs of the device's processes."""
    lines = [
        f"{log.name}: {line}"
        for log in Path(lab.folder, "egressd").rglob("*.log")
        for line in log.read_text(errors="replace").splitlines()
    ]
    assert lines, "the device has no log"
    return [line for line in lines if "Warning" in line]


def replace(lab: Lab, process: str, number: signal.Signals) -> None:
    """End a process by a signal, and wait for its successor."""
    (pid,) = lab.device.pids(process)
    os.kill(pid, number)
    eventually(lambda: lab.device.pids(process) not in ([], [pid]), 20)
    eventually(lambda: lab.api.ask("GET", "/ops/health").status == 200, 20)


def test_typical_use_causes_no_warnings(lab: Lab, tmp_path: Path) -> None:
    add_nodes(lab)
    for process in ("egressd.app netd", "egressd.app api"):  # the engine's have no such variable
        (pid,) = lab.device.pids(process)
        assert b"PYTHONWARNINGS=always" in Path(f"/proc/{pid}/environ").read_bytes()
    for target in ("socks5", "ss", "Interface:wan2", "DIRECT"):
        send(lab, 1, target)
        assert lab.client(1).http("http://203.0.113.10/").ok
    lab.api.get("/nodes/delay?name=ss")
    lab.device.run("backup", str(tmp_path / "backup"))
    lab.device.run("restore", str(tmp_path / "backup"))
    for process, number in (("netd", signal.SIGUSR1), ("api", signal.SIGTERM)):
        replace(lab, f"egressd.app {process}", number)
    clear(lab)
    lab.device.stop()
    assert warnings(lab) == []

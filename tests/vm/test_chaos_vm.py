"""Chaos with VPN lines, on a kernel that has PPP: see `egressd_lab.chaos`.

It takes a quarter of an hour on an emulated processor, so it must be requested:
``EGRESSD_CHAOS=MINUTES script/test tests/vm/test_chaos_vm.py``.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from egressd_lab.chaos.report import Report, told
from tests.vm import boot

MINUTES = float(os.environ.get("EGRESSD_CHAOS", "0"))
SEED = 20
RATE = 300.0
MACHINE_S = 3600.0

pytestmark = [
    pytest.mark.vm,
    pytest.mark.timeout(0),
    pytest.mark.skipif(MINUTES == 0, reason="chaos in a VM is asked for by EGRESSD_CHAOS=MINUTES"),
]


def test_chaos_with_lines_breaks_no_promise(tmp_path: Path) -> None:
    boot.kernel()
    arguments = (str(MINUTES), str(SEED), str(RATE))
    said = boot.run("tests.vm.inside.chaos", tmp_path, *arguments, timeout_s=MACHINE_S)
    print(said)
    report = msgspec.json.decode((tmp_path / "report.json").read_bytes(), type=Report)
    print(told(report))
    assert report.breaches == [], said
    assert any("line l2tp_2" in what for what in said.splitlines()), "no line was changed"

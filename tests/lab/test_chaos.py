"""A short run of the test that ``script/chaos`` does at length: P1 to P4 at once."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from egressd_lab.chaos.report import Trace
from egressd_lab.chaos.story import Chaos

pytestmark = [pytest.mark.lab, pytest.mark.timeout(240)]


@pytest.fixture
def disk(namespaces: None, tmp_path: Path) -> Iterator[Path]:
    """Yield a small disk, reachable by the API's user."""
    folder = tmp_path / "data"
    folder.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=32m,mode=0755", "chaos", folder], check=True
    )
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_half_a_minute_of_chaos_breaks_no_promise(disk: Path) -> None:
    """Past faults that it found: clients of a lost worker were blocked for 30 s, because they
    waited for the back-off of another instance; and netd saw links that changed during its start 10
    s late.
    """
    trace: list[Trace] = []
    report = Chaos(minutes=0.5, seed=20, rate=2000, disk=disk, say=trace.append).run()
    told = "\n".join(msgspec.json.encode(event).decode() for event in trace)
    assert report.breaches == [], f"seed 20\n{told}"
    assert report.sent > 1000
    assert report.wrong == 0
    assert sum(report.happened.values()) >= 3
    assert report.exchanges > 50

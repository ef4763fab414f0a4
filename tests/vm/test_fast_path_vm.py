"""The fast path of known flows on Debian's own kernel, where connection tracking is a module."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from egressd_lab.nodes import node_address
from tests.vm import boot
from tests.vm.inside.fast_path import SIZE, Found

MACHINE_S = 3000.0
"""Seconds that it may take. It computes for a minute or two, by what other tests leave."""

pytestmark = [pytest.mark.vm, pytest.mark.timeout(MACHINE_S + 60)]


def test_a_download_takes_the_fast_path_on_debians_kernel_without_a_limit(tmp_path: Path) -> None:
    boot.kernel()
    said = boot.run("tests.vm.inside.fast_path", tmp_path, timeout_s=MACHINE_S)
    result = tmp_path / "found.json"
    assert result.exists(), said
    found = msgspec.json.decode(result.read_bytes(), type=Found)
    for download, size in ((found.first, SIZE), (found.again, SIZE)):
        assert (download.error, download.size) == ("", size)
        assert download.passed > 0.8 * size, found.said
    assert (found.limited.error, found.limited.size) == ("", SIZE // 5)
    assert found.limited.passed == 0
    assert found.limited.seconds > 1.2  # at 8 Mbit/s
    assert found.hooks == ["ingress"] * 3
    limit, flowtable = found.problems
    assert "tc filter show dev wan1 ingress" in limit
    assert "flowtable inet theirs ft" in flowtable
    assert found.answered == ("", node_address(0)), found.told
    assert not any("UDP through nodes" in problem for problem in found.told)

"""Known flows' short way on Debian's own kernel, where connection tracking is a module."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from tests.vm import boot
from tests.vm.inside.fast_path import SIZE, Found

MACHINE_S = 900.0

pytestmark = [pytest.mark.vm, pytest.mark.timeout(MACHINE_S + 60)]


def test_a_download_goes_it_on_debians_kernel(tmp_path: Path) -> None:
    boot.kernel()
    said = boot.run("tests.vm.inside.fast_path", tmp_path, timeout_s=MACHINE_S)
    result = tmp_path / "found.json"
    assert result.exists(), said
    found = msgspec.json.decode(result.read_bytes(), type=Found)
    assert (found.error, found.size) == ("", SIZE)
    assert found.passed > 0.8 * SIZE, found.said

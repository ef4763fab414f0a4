"""Debian's own kernel: the fast path of known flows, where connection tracking is a module, and the
module ``wireguard`` as the server of a node.
"""

from __future__ import annotations

import msgspec
import pytest

from egressd_lab.nodes import node_address
from tests.vm import boot, verdicts
from tests.vm.inside.fast_path import SIZE, Found

MACHINE_S = 600.0
"""Seconds of processor time that it may take, if it is emulated: it takes a minute or two."""

pytestmark = verdicts.marks(MACHINE_S)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """The results of one boot."""
    boot.kernel()
    shared = tmp_path_factory.mktemp("shared")
    said = boot.run("tests.vm.inside.fast_path", shared, timeout_s=MACHINE_S)
    result = shared / "found.json"
    assert result.exists(), said
    return msgspec.json.decode(result.read_bytes(), type=Found)


def test_a_download_takes_the_fast_path_on_debians_kernel_without_a_limit(found: Found) -> None:
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


def test_a_tunnel_to_the_kernels_wireguard_carries_a_client_or_blocks_it(found: Found) -> None:
    told = found.tunnelled
    for visit in (told.first, told.again):
        assert visit.errors == ("", ""), found.said
        assert visit.seen == (told.address, told.address)
    assert told.is_intact
    assert all(told.gone.errors), told.gone
    assert told.seen_while_gone == 0
    assert told.in_tunnel, "the capture sees the tunnel"
    assert told.outside == 0

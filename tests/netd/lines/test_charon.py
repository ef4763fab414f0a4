"""What `Charon` keeps of its own: the ports that it hands out. The daemon is tried in tests/vm."""

from __future__ import annotations

from pathlib import Path

import pytest

from egressd.netd.lines.charon import Charon
from egressd.netd.lines.diagnosis import Failure
from egressd.planner.registry import LINE_PORTS


def test_a_port_is_not_used_again_at_once(tmp_path: Path) -> None:
    charon = Charon(tmp_path)
    kept = charon.take_port()
    used = set()
    for _ in range(len(LINE_PORTS) - 1):
        port = charon.take_port()
        charon.give_back(port)
        used.add(port)
    assert used == set(LINE_PORTS) - {kept}


def test_every_port_is_handed_out_once(tmp_path: Path) -> None:
    charon = Charon(tmp_path)
    assert {charon.take_port() for _ in LINE_PORTS} == set(LINE_PORTS)
    with pytest.raises(Failure, match="no more than 256 lines can have a secret"):
        charon.take_port()

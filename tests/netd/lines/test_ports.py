"""The ports that lines send from."""

from __future__ import annotations

import pytest

from egressd.netd.lines.diagnosis import Failure
from egressd.netd.lines.ports import Ports

RANGE = range(5000, 5010)


def test_a_port_is_not_used_again_at_once() -> None:
    ports = Ports(RANGE, "")
    kept = ports.take()
    used = set()
    for _ in range(len(RANGE) - 1):
        port = ports.take()
        ports.give_back(port)
        used.add(port)
    assert used == set(RANGE) - {kept}


def test_every_port_is_handed_out_once() -> None:
    ports = Ports(RANGE, "lines are blue")
    ports.keep(5003)
    assert {ports.take() for _ in RANGE[1:]} == set(RANGE) - {5003}
    with pytest.raises(Failure, match="no more than 10 lines are blue"):
        ports.take()

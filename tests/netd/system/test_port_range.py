"""Ports are handed out in turn."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from egressd.netd.system.port_range import PortRange


class PortRangeModel(RuleBasedStateMachine):
    """`PortRange` against a plain set."""

    def __init__(self) -> None:
        super().__init__()
        self.ports = PortRange(range(100, 105), "all are taken")
        self.taken: set[int] = set()

    @rule()
    def take(self) -> None:
        if len(self.taken) == 5:
            with pytest.raises(LookupError):
                self.ports.take()
            return
        port = self.ports.take()
        assert port not in self.taken
        self.taken.add(port)

    @rule(port=st.integers(100, 104))
    def claim(self, port: int) -> None:
        self.ports.claim(port)
        self.taken.add(port)

    @rule(port=st.integers(100, 104))
    def give_back(self, port: int) -> None:
        self.ports.give_back(port)
        self.taken.discard(port)

    @invariant()
    def all_in_range(self) -> None:
        assert self.taken <= set(range(100, 105))


TestPortRange = PortRangeModel.TestCase


def test_a_freed_port_is_reused_last() -> None:
    ports = PortRange(range(3), "all are taken")
    ports.give_back(ports.take())
    assert [ports.take(), ports.take(), ports.take()] == [1, 2, 0]


def test_excluded_ports_are_not_given() -> None:
    ports = PortRange(range(3), "all are taken")
    assert [ports.take({0, 1}), ports.take({0})] == [2, 1]
    with pytest.raises(LookupError):
        ports.take({0})


def test_a_port_is_not_used_again_at_once() -> None:
    ports = PortRange(range(5000, 5010), "", first=7)
    kept = ports.take()
    used = set()
    for _ in range(9):
        port = ports.take()
        ports.give_back(port)
        used.add(port)
    assert used == set(range(5000, 5010)) - {kept}


def test_every_port_is_given_once() -> None:
    ports = PortRange(range(5000, 5010), "no more than 10 lines are blue")
    ports.claim(5003)
    assert {ports.take() for _ in range(9)} == set(range(5000, 5010)) - {5003}
    with pytest.raises(LookupError, match="no more than 10 lines are blue"):
        ports.take()

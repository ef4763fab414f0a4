"""The reasons to check egresses and resolvers early."""

from __future__ import annotations

from egressd.netd.health.dns_doubts import ASKED_AGAIN_S, PATIENCE_S, Questions, Silence
from egressd.netd.kernel.traffic import InterfaceTraffic


class Wans:
    """Two WANs and their counters."""

    def __init__(self) -> None:
        self.counters = {"wan1": InterfaceTraffic(10, 10), "wan2": InterfaceTraffic(20, 20)}
        self.silence = Silence(lambda: ("wan1", "wan2", "gone"), lambda: self.counters)
        self.silence.is_noticed(0.0)

    def carry(self, name: str, *, received: int = 0, sent: int = 0) -> None:
        before = self.counters[name]
        self.counters[name] = InterfaceTraffic(before.received + received, before.sent + sent)


def test_unanswered_traffic_is_noticed_once() -> None:
    wans = Wans()
    wans.carry("wan1", sent=100)
    assert not wans.silence.is_noticed(1.0)
    assert not wans.silence.is_noticed(1.0 + PATIENCE_S / 2)
    noticed = []
    for moment in (1.0 + 2 * PATIENCE_S, 5.0, 9.0):
        wans.carry("wan1", sent=100)
        noticed.append(wans.silence.is_noticed(moment))
    assert noticed == [True, False, False]


def test_silence_after_an_answer_is_noticed_again() -> None:
    wans = Wans()
    for moment in (1.0, 11.0):
        wans.carry("wan1", sent=100)
        assert not wans.silence.is_noticed(moment)
        assert wans.silence.is_noticed(moment + 2 * PATIENCE_S)
        wans.carry("wan1", received=100)
        assert not wans.silence.is_noticed(moment + 5)


def test_an_egress_without_traffic_or_with_answers_is_not_noticed() -> None:
    wans = Wans()
    for moment in range(1, 9):
        wans.carry("wan1", sent=100, received=100)
        assert not wans.silence.is_noticed(float(moment))


def test_egresses_with_dns_queries_are_noticed_at_limited_intervals() -> None:
    counted = {1: 5}
    asked = Questions(lambda: dict(counted))
    assert asked.noticed(0.0) == {1}
    assert asked.noticed(9.0) == set()
    counted |= {1: 6, 2: 1}
    assert asked.noticed(10.0) == {1, 2}
    counted |= {1: 7, 2: 1}
    assert asked.noticed(10.0 + ASKED_AGAIN_S / 2) == set()
    assert asked.noticed(10.0 + ASKED_AGAIN_S) == {1}
    assert asked.noticed(99.0) == set()


def test_an_egress_whose_counter_was_deleted_is_noticed_again() -> None:
    counted = {1: 1}
    asked = Questions(lambda: dict(counted))
    asked.noticed(0.0)
    counted.clear()
    assert asked.noticed(60.0) == set()
    counted[1] = 1
    assert asked.noticed(60.1) == {1}

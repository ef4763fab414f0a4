"""WANs that have sent and heard nothing."""

from __future__ import annotations

from egressd.netd.kernel.traffic import Traffic
from egressd.netd.silence import PATIENCE_S, Silence


class Wans:
    """Two WANs and their counters, and the suspicions so far."""

    def __init__(self) -> None:
        self.counters = {"wan1": Traffic(10, 10), "wan2": Traffic(20, 20)}
        self.suspicions = 0
        self.silence = Silence(lambda: ("wan1", "wan2", "gone"), self._suspect, self._read)
        self.silence.look(0.0)

    def _suspect(self) -> None:
        self.suspicions += 1

    def _read(self) -> dict[str, Traffic]:
        return self.counters

    def carry(self, name: str, *, received: int = 0, sent: int = 0) -> None:
        before = self.counters[name]
        self.counters[name] = Traffic(before.received + received, before.sent + sent)


def test_what_is_sent_and_not_answered_is_suspected_once() -> None:
    wans = Wans()
    wans.carry("wan1", sent=100)
    wans.silence.look(1.0)
    wans.silence.look(1.0 + PATIENCE_S / 2)
    assert wans.suspicions == 0
    for moment in (1.0 + PATIENCE_S, 5.0, 9.0):
        wans.carry("wan1", sent=100)
        wans.silence.look(moment)
    assert wans.suspicions == 1


def test_an_answer_ends_the_silence_and_the_next_one_is_suspected_again() -> None:
    wans = Wans()
    for moment in (1.0, 11.0):
        wans.carry("wan1", sent=100)
        wans.silence.look(moment)
        wans.silence.look(moment + PATIENCE_S)
        wans.carry("wan1", received=100)
        wans.silence.look(moment + 5)
    assert wans.suspicions == 2


def test_one_that_sends_nothing_or_is_answered_is_left_in_peace() -> None:
    wans = Wans()
    for moment in range(1, 9):
        wans.carry("wan1", sent=100, received=100)
        wans.silence.look(float(moment))
    assert wans.suspicions == 0

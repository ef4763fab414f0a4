"""How fast secrets may be guessed."""

from __future__ import annotations

from egressd.console.throttle import (
    ALL_FREE,
    ALL_INTERVAL_S,
    FREE,
    INTERVAL_S,
    Throttle,
)
from egressd.service.debts import SOURCES_MAX


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def guesses_in(throttle: Throttle, clock: Clock, source: str, seconds: int) -> int:
    """How many of one guess a second are heard."""
    heard = 0
    for _ in range(seconds):
        heard += throttle.charge(source) == 0
        clock.now += 1
    return heard


def test_a_source_has_a_few_guesses_and_then_one_a_minute() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    assert guesses_in(throttle, clock, "a", 3600) == FREE + 3600 // INTERVAL_S - 1


def test_waiting_as_told_is_enough() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    for _ in range(50):
        wait = throttle.charge("a")
        if wait:
            clock.now += wait - 0.5
            assert throttle.charge("a") > 0
            clock.now += 0.5
            assert throttle.charge("a") == 0


def test_all_sources_together_are_slowed_but_a_new_one_is_heard() -> None:
    clock = Clock()
    throttle = Throttle(clock)
    sources = [f"10.0.0.{n}" for n in range(200)]
    for source in sources:
        assert throttle.charge(source) == 0
    assert sum(throttle.charge(source) == 0 for source in sources) == 0
    assert throttle.charge("192.168.8.5") == 0
    clock.now += (200 - ALL_FREE) * ALL_INTERVAL_S + 2 * ALL_INTERVAL_S
    assert sum(throttle.charge(source) == 0 for source in sources) < 5


def test_what_is_remembered_is_bounded() -> None:
    throttle = Throttle(Clock())
    for number in range(SOURCES_MAX * 2):
        throttle.charge(str(number))
    assert len(throttle._debts) <= SOURCES_MAX
    assert throttle.charge("0") == 0

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.api.throttle import (
    ALL_FREE,
    ALL_INTERVAL_S,
    DEBT_MAX_S,
    FREE,
    INTERVAL_S,
    Throttle,
)
from egressd.service.debts import SOURCES_MAX


def test_the_first_wrong_tokens_are_answered_at_once_and_later_ones_in_turn() -> None:
    throttle = Throttle()
    assert [throttle.wrong("a", 0.0) for _ in range(FREE)] == [0.0] * FREE
    assert throttle.wrong("a", 0.0) == pytest.approx(INTERVAL_S)
    assert throttle.wrong("a", 0.0) == pytest.approx(2 * INTERVAL_S)
    assert throttle.wrong("b", 0.0) == 0.0


def test_a_flood_from_one_source_locks_out_nobody_else() -> None:
    throttle = Throttle()
    while throttle.may_wait("attacker", 0.0):
        throttle.wrong("attacker", 0.0)
    assert throttle.may_wait("admin", 0.0)
    assert not throttle.may_wait("attacker", 0.0)
    assert throttle.may_wait("attacker", INTERVAL_S + 0.001)


def test_a_source_is_heard_again_once_its_debt_is_paid() -> None:
    throttle = Throttle()
    for _ in range(20):
        throttle.wrong("a", 0.0)
    assert throttle.wrong("a", 20 * INTERVAL_S) == 0.0


def test_many_sources_together_are_bounded_and_a_new_one_is_still_heard() -> None:
    throttle = Throttle()
    for number in range(ALL_FREE + 1):
        throttle.wrong(f"bot {number}", 0.0)
    assert not throttle.may_wait("bot 7", 0.0)
    assert throttle.may_wait("admin", 0.0)
    assert throttle.may_wait("bot 7", 2 * ALL_INTERVAL_S)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0, 0.2)), max_size=200))
def test_no_source_has_turns_faster_than_its_rate(tries: list[tuple[str, float]]) -> None:
    throttle, now = Throttle(), 0.0
    answered: dict[str, list[float]] = {}
    for source, pause in tries:
        now += pause
        if throttle.may_wait(source, now):
            delay = throttle.wrong(source, now)
            assert delay <= DEBT_MAX_S + INTERVAL_S + 1e-6
            answered.setdefault(source, []).append(now + delay)
    for times in answered.values():
        for first, later in zip(times, times[FREE + 1 :], strict=False):
            assert later - first >= INTERVAL_S - 1e-6


def test_the_memory_for_sources_is_bounded() -> None:
    throttle = Throttle()
    for number in range(SOURCES_MAX + 100):
        throttle.wrong(str(number), 0.0)
    assert len(throttle._debts) <= SOURCES_MAX

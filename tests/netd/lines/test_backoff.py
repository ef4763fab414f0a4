"""The waiting times of a line."""

from __future__ import annotations

import pytest

from egressd.netd.lines.backoff import (
    AT_ONCE_S,
    EAGER_ATTEMPTS,
    EAGER_MAX_S,
    IN_USE_FIRST_S,
    IN_USE_MAX_S,
    MAX_S,
    MISSING_S,
    PROVEN_ATTEMPTS,
    PROVEN_MAX_S,
    REFUSED_MAX_S,
    STEADY_S,
    TAKEOVER_S,
    TAKEOVER_TRIES,
    Backoff,
)
from egressd.netd.lines.failure import Cause


def test_the_delay_doubles_from_one_second_to_a_minute() -> None:
    backoff = Backoff()
    delays = [backoff.delay(Cause.FAILED, 0) for _ in range(40)]
    assert delays[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert set(delays[8:]) == {MAX_S}


def test_a_silent_server_is_dialled_often_at_first() -> None:
    backoff = Backoff()
    delays = [backoff.delay(Cause.UNREACHABLE, 0) for _ in range(EAGER_ATTEMPTS + 10)]
    assert delays[0] == 1
    assert set(delays[1:EAGER_ATTEMPTS]) == {EAGER_MAX_S}
    assert set(delays[EAGER_ATTEMPTS:]) == {MAX_S}


@pytest.mark.parametrize("cause", [Cause.WRONG_PASSWORD, Cause.WRONG_SECRET])
def test_a_wrong_password_waits_longer_from_the_first_attempt(cause: Cause) -> None:
    backoff = Backoff()
    backoff.delay(Cause.UNREACHABLE, 0)
    delays = [backoff.delay(cause, 0) for _ in range(6)]
    assert delays == [60, 120, 240, 480, REFUSED_MAX_S, REFUSED_MAX_S]


def test_an_account_in_use_is_tried_every_few_seconds_for_minutes() -> None:
    backoff = Backoff()
    backoff.delay(Cause.UNREACHABLE, 0)
    delays = [
        backoff.delay(Cause.REFUSED, 0, is_proven=True, is_in_use=True)
        for _ in range(PROVEN_ATTEMPTS + 3)
    ]
    assert delays[:4] == [IN_USE_FIRST_S, 10, IN_USE_MAX_S, IN_USE_MAX_S]
    assert set(delays[3:PROVEN_ATTEMPTS]) == {IN_USE_MAX_S}
    assert delays[PROVEN_ATTEMPTS:] == [60, 120, 240]


@pytest.mark.parametrize("cause", [Cause.FAILED, Cause.REFUSED, Cause.LOST])
def test_a_line_that_has_worked_is_dialled_often_for_some_minutes(cause: Cause) -> None:
    backoff = Backoff()
    delays = [backoff.delay(cause, 0, is_proven=True) for _ in range(PROVEN_ATTEMPTS + 1)]
    assert delays[:4] == [1, 2, 4, PROVEN_MAX_S]
    assert set(delays[4:PROVEN_ATTEMPTS]) == {PROVEN_MAX_S}
    assert delays[PROVEN_ATTEMPTS] == MAX_S


def test_a_line_that_was_up_for_long_is_redialled_at_once() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.delay(Cause.UNREACHABLE, 0)
    assert backoff.delay(Cause.LOST, STEADY_S) == AT_ONCE_S
    assert backoff.delay(Cause.UNREACHABLE, 0) == 1


def test_a_flapping_line_is_redialled_at_once_only_the_first_time() -> None:
    backoff = Backoff()
    assert [backoff.delay(Cause.LOST, 2) for _ in range(4)] == [AT_ONCE_S, 2, 4, 8]
    failed_before = Backoff()
    assert failed_before.delay(Cause.FAILED, 0) == 1
    assert failed_before.delay(Cause.LOST, 2) == 2


def test_a_changed_carrier_is_no_failure_and_waits_for_none() -> None:
    """Past fault: a line that had failed before waited for seconds after a change of its WAN."""
    backoff = Backoff()
    assert [backoff.delay(Cause.UNREACHABLE, 0) for _ in range(2)] == [1, 2]
    waits = [backoff.delay(Cause.LOST, 2, is_carrier_changed=True) for _ in range(3)]
    assert waits == 3 * [AT_ONCE_S]
    assert backoff.streak == 2


def test_a_server_that_answers_again_is_dialled_soon() -> None:
    """A server that has just started refuses all logins before it has read its settings."""
    backoff = Backoff()
    for _ in range(20):
        backoff.delay(Cause.UNREACHABLE, 0)
    assert [backoff.delay(Cause.REFUSED, 0) for _ in range(3)] == [1, 2, 4]


def test_a_missing_requirement_is_checked_at_a_steady_interval() -> None:
    backoff = Backoff()
    assert {backoff.delay(Cause.MISSING, 0) for _ in range(5)} == {MISSING_S}


def test_an_invalid_line_is_not_dialled_again() -> None:
    assert Backoff().delay(Cause.INVALID, 0) is None


def test_a_reset_starts_over() -> None:
    backoff = Backoff()
    for _ in range(5):
        backoff.delay(Cause.UNREACHABLE, 0)
    backoff.reset()
    assert backoff.delay(Cause.UNREACHABLE, 0) == 1


def test_a_refusal_after_a_takeover_is_followed_by_few_quick_tries() -> None:
    backoff = Backoff()
    backoff.take_over()
    quick = [backoff.delay(Cause.REFUSED, 0, is_in_use=True) for _ in range(TAKEOVER_TRIES)]
    assert set(quick) == {TAKEOVER_S}
    assert not backoff.is_after_takeover
    assert backoff.delay(Cause.WRONG_PASSWORD, 0) == 60


def test_a_line_that_has_come_up_since_a_takeover_is_like_others() -> None:
    backoff = Backoff()
    backoff.take_over()
    backoff.delay(Cause.LOST, 1)
    assert not backoff.is_after_takeover
    assert backoff.delay(Cause.WRONG_PASSWORD, 0) == 60

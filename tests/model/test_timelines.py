"""States over time, made of changes and recordings; and the codes of states and delays."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.model.node_delays import MILLISECONDS, OpenDelays, code_of_delay, delay_in
from egressd.model.timelines import (
    OFF,
    PART_NUMBERS_MAX,
    PARTS_MAX,
    Recording,
    StateChange,
    StateSpan,
    is_up,
    member_in,
    part_number,
    part_of,
    seconds_of,
    state_code,
    state_spans,
)

UP, DOWN = state_code(is_up=True), state_code(is_up=False)


def change(recording: int, at: int, code: int) -> StateChange:
    return StateChange("line", 3, recording, at, code)


def spans(
    changes: list[tuple[int, int, int]], *recordings: tuple[int, int, int]
) -> list[tuple[int, int, int]]:
    made = [change(*each) for each in changes]
    found = state_spans(made, [Recording(*each) for each in recordings], 0, 1000)
    return [(each.start, each.end, each.code) for each in found]


def test_a_state_holds_until_the_next_one_or_the_last_look() -> None:
    found = spans([(1, 100, UP), (1, 160, DOWN), (1, 200, UP)], (1, 90, 300))
    assert found == [(100, 160, UP), (160, 200, DOWN), (200, 300, UP)]


def test_nothing_is_known_between_two_recordings() -> None:
    found = spans([(1, 100, UP), (2, 250, DOWN)], (1, 90, 150), (2, 220, 300))
    assert found == [(100, 150, UP), (220, 250, UP), (250, 300, DOWN)]


def test_later_recordings_count_where_the_clock_was_set_back() -> None:
    """The times of the wrong clock, ahead by far, are left out."""
    found = spans(
        [(1, 100, UP), (2, 900, DOWN), (3, 160, UP)], (1, 90, 200), (2, 880, 950), (3, 150, 400)
    )
    assert found == [(100, 150, UP), (150, 160, DOWN), (160, 400, UP)]


def test_a_state_from_before_the_known_recordings_is_still_known() -> None:
    assert spans([(1, 100, DOWN)], (7, 500, 600)) == [(500, 600, DOWN)]


def test_states_are_cut_to_the_window() -> None:
    changes = [change(1, 100, UP), change(1, 200, OFF)]
    found = state_spans(changes, [Recording(1, 0, 900)], 150, 260)
    assert found == [StateSpan(150, 200, UP), StateSpan(200, 260, OFF)]
    assert [span.name for span in found] == ["up", "off"]
    assert seconds_of(found, 180, 1000) == (20, 0)


@given(
    st.lists(
        st.tuples(
            st.integers(-300, 300),
            st.lists(st.tuples(st.integers(0, 40), st.sampled_from([UP, DOWN, OFF])), max_size=5),
        ),
        max_size=6,
    )
)
def test_states_never_overlap_and_end_with_the_last_look(
    runs: list[tuple[int, list[tuple[int, int]]]],
) -> None:
    at, changes, recordings = 500, [], []
    for number, (jump, moves) in enumerate(runs, 1):
        at = begun = max(1, at + jump)
        for seconds, code in moves:
            at += seconds
            changes.append(change(number, at, code))
        recordings.append(Recording(number, begun, at))
    found = state_spans(changes, recordings, 0, 1 << 40)
    assert all(span.start < span.end for span in found)
    assert all(one.end <= other.start for one, other in pairwise(found))
    if changes and recordings[-1].begun < recordings[-1].seen and changes[0].at < at:
        assert found[-1].end == at


@given(st.booleans(), st.none() | st.integers(0, PARTS_MAX["node"] - 1))
def test_a_code_has_the_state_and_the_elected_node(state: bool, member: int | None) -> None:
    code = state_code(state, member)
    assert (is_up(code), member_in(code)) == (state, member)
    assert code != OFF
    assert (is_up(OFF), member_in(OFF)) == (False, None)


def test_each_part_has_a_number_of_its_own() -> None:
    parts = [(part, number) for part, most in PARTS_MAX.items() for number in range(most)]
    numbers = [part_number(*each) for each in parts]
    assert sorted(numbers) == [*range(PART_NUMBERS_MAX)]
    assert [part_of(number) for number in numbers] == parts


@given(st.integers(1, 60_000))
def test_a_delay_is_kept_to_two_percent(ms: int) -> None:
    code = code_of_delay(ms)
    assert 0 < code < 256
    assert abs(MILLISECONDS[code] - ms) <= (0 if ms <= 29 else max(1, 0.02 * ms))


def test_delays_beyond_all_codes_are_the_nearest() -> None:
    assert [MILLISECONDS[code_of_delay(ms)] for ms in (0, 10**9)] == [1, 60_000]


def test_the_delay_of_a_slot_is_the_mean() -> None:
    slot = OpenDelays()
    for ms in (10, 20):
        slot.add(5, ms)
    slot.add_all(bytes([0] * 5 + [code_of_delay(18)]), weight=2)
    slot.fill(bytes([7, 0, 0, 0, 0, 200]))
    codes = slot.codes()
    assert [delay_in(codes, number) for number in (0, 1, 5, 6)] == [7, None, 16, None]


def test_bytes_that_are_no_codes_of_delays_are_refused() -> None:
    with pytest.raises(ValueError, match="codes of delays"):
        delay_in(b"\xff", 0)

"""The numbers of the history's keys: bounds, reuse, and what is written of them."""

from __future__ import annotations

import pytest

from egressd.model.history import KEYS_MAX
from egressd.service.history_keys import REUSED_AFTER_S, HistoryKeys

DAY = 86_400
WEEKS = REUSED_AFTER_S + 14 * DAY


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KEYS_MAX, "client", 3)


@pytest.fixture
def keys() -> HistoryKeys:
    keys = HistoryKeys()
    for nth, name in enumerate("abc"):
        assert keys.number("client", name, nth * DAY) == nth
    return keys


def test_a_key_keeps_its_number(keys: HistoryKeys) -> None:
    again = HistoryKeys()
    again.take([*keys.changed.values()])
    assert [again.number("client", name, 9 * DAY) for name in "cab"] == [2, 0, 1]


def test_keys_beyond_the_bound_are_counted_until_the_day_ends(keys: HistoryKeys) -> None:
    assert [keys.number("client", name, 3 * DAY) for name in "xyzwx"] == [None] * 5
    assert keys.unrecorded["client"] == {"x", "y", "z"}, "no more names than keys are kept"
    keys.number("client", "a", 4 * DAY)
    assert keys.unrecorded["client"] == set()


def test_the_number_unused_for_longest_is_the_next_keys(keys: HistoryKeys) -> None:
    day = WEEKS
    assert keys.number("client", "b", day) == 1
    # All that are left over go, the first one first; b has traffic, and keeps its number.
    assert [keys.number("client", name, day) for name in "xyz"] == [0, 2, None]
    assert {name: key.since for name, key in keys.of["client"].items()} == {
        "b": 0,
        "x": day,
        "y": day,
    }
    assert keys.number("client", "a", day) is None


def test_a_key_with_traffic_this_day_keeps_its_number(keys: HistoryKeys) -> None:
    day = WEEKS
    assert keys.number("client", "x", day) == 0  # the unused ones are found out here
    assert keys.number("client", "b", day) == 1
    assert [keys.number("client", name, day) for name in "yz"] == [2, None]


def test_the_day_of_use_is_written_every_one_or_two_weeks(keys: HistoryKeys) -> None:
    keys.changed.clear()
    written = []
    for day in range(60):
        keys.number("client", "a", day * DAY)
        if keys.changed:
            written.append(day)
            keys.changed.clear()
    gaps = [later - earlier for earlier, later in zip([0, *written], written, strict=False)]
    assert set(gaps) <= {*range(7, 15)}
    assert written

"""Class numbers: one a rule, kept, reused, and an error when they run out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.model.errors import Failed
from egressd.netd.kernel.tc.numbers import ClassNumbers, is_usable
from egressd.planner.registry import HTB_TREE_CLASSES

rules = st.integers(1, 30)


@given(st.lists(st.tuples(st.booleans(), st.lists(rules, max_size=10)), max_size=20))
def test_rules_have_distinct_classes_that_do_not_change(
    steps: list[tuple[bool, list[int]]],
) -> None:
    numbers = ClassNumbers()
    for gives, some in steps:
        before = dict(numbers.given)
        if gives:
            numbers.give(some)
            assert numbers.given.keys() == before.keys() | set(some)
        else:
            numbers.take_back(some)
            assert numbers.given.keys() == before.keys() - set(some)
        kept = before.keys() & numbers.given.keys()
        assert {rule: numbers.given[rule] for rule in kept} == {r: before[r] for r in kept}
        assert len(set(numbers.given.values())) == len(numbers.given)
        assert all(map(is_usable, numbers.given.values()))


@given(st.dictionaries(rules, st.integers(-1, 3 * HTB_TREE_CLASSES)), st.lists(rules))
def test_usable_classes_in_the_kernel_are_adopted(found: dict[int, int], more: list[int]) -> None:
    numbers = ClassNumbers()
    numbers.recover(found)
    for rule, number in numbers.given.items():
        assert found[rule] == number
    usable = {number for number in found.values() if is_usable(number)}
    assert set(numbers.given.values()) == usable
    numbers.give(more)
    assert len(set(numbers.given.values())) == len(numbers.given)


def test_the_lowest_free_numbers_are_given_first() -> None:
    numbers = ClassNumbers()
    numbers.give([70, 80, 90])
    assert numbers.given == {70: 1, 80: 2, 90: 3}
    numbers.take_back([80, 70])
    numbers.give([100])
    assert numbers.given == {90: 3, 100: 1}


def test_too_many_limited_rules_are_refused_and_get_no_number() -> None:
    numbers = ClassNumbers()
    assert numbers.capacity == 64 * 1023
    numbers.give(range(1, numbers.capacity))
    before = dict(numbers.given)
    with pytest.raises(Failed, match=r"65473 rules are limited.*65472 only"):
        numbers.give([0, numbers.capacity])
    assert numbers.given == before
    numbers.give([0])
    assert len(set(numbers.given.values())) == numbers.capacity

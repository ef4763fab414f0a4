"""The choice of slots: as few workers as suffice, and no instance that moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from egressd.netd.engine.slots import (
    INSTANCES_EACH,
    SlotView,
    choose,
    superfluous,
    wanted,
)

KEYS = st.sampled_from([f"node:{n}" for n in range(80)])
VIEWS = st.builds(
    SlotView,
    keys=st.frozensets(KEYS, max_size=40),
    lost=st.frozensets(KEYS, max_size=5),
    is_usable=st.booleans(),
)
SLOTS = st.dictionaries(st.integers(1, 6), VIEWS, max_size=6)
LIMITS = st.integers(1, 6)


def keys(count: int, first: int = 0) -> frozenset[str]:
    return frozenset(f"node:{n}" for n in range(first, first + count))


@pytest.mark.parametrize(
    ("instances", "limit", "workers"),
    [(0, 4, 1), (1, 4, 1), (16, 4, 1), (17, 4, 2), (32, 4, 2), (64, 4, 4), (65, 4, 4), (9, 1, 1)],
)
def test_one_worker_is_wanted_for_sixteen_instances(
    instances: int, limit: int, workers: int
) -> None:
    assert wanted(instances, limit) == workers


def test_another_worker_is_started_when_the_others_are_full() -> None:
    assert choose("node:99", {}, 4) == 1
    assert choose("node:99", {1: SlotView(keys=keys(15))}, 4) == 1
    assert choose("node:99", {1: SlotView(keys=keys(16))}, 4) == 2
    assert choose("node:99", {1: SlotView(keys=keys(16))}, 1) == 1


def test_beyond_the_limit_instances_are_spread_evenly() -> None:
    two = {1: SlotView(keys=keys(40)), 2: SlotView(keys=keys(30, 40))}
    assert choose("node:99", two, 2) == 2


def test_the_successor_of_an_instance_is_none_more() -> None:
    full = {1: SlotView(keys=keys(16))}
    assert choose("node:3", full, 4) == 1


def test_instances_start_in_the_fullest_if_fewer_workers_suffice() -> None:
    two = {1: SlotView(keys=keys(2)), 2: SlotView(keys=keys(5, 2))}
    assert choose("node:99", two, 4) == 2


def test_a_lost_instance_starts_in_the_successor_of_its_worker() -> None:
    lost = {1: SlotView(lost=keys(3)), 2: SlotView(keys=keys(5, 3))}
    assert choose("node:1", lost, 4) == 1
    gone = {1: SlotView(lost=keys(3), is_usable=False), 2: SlotView(keys=keys(5, 3))}
    assert choose("node:1", gone, 4) == 2


def test_a_worker_that_does_not_come_up_is_no_reason_to_wait() -> None:
    assert choose("node:1", {1: SlotView(is_usable=False)}, 2) == 2
    assert choose("node:1", {1: SlotView(is_usable=False)}, 1) is None


def test_an_empty_worker_may_end_if_another_is_left() -> None:
    assert superfluous({}) == set()
    assert superfluous({1: SlotView()}) == set()
    assert superfluous({1: SlotView(), 2: SlotView()}) == {2}
    assert superfluous({1: SlotView(), 2: SlotView(keys=keys(1))}) == {1}
    assert superfluous({1: SlotView(is_usable=False), 2: SlotView()}) == {1}


@given(key=KEYS, slots=SLOTS, limit=LIMITS)
def test_the_slot_is_usable_or_new(key: str, slots: dict[int, SlotView], limit: int) -> None:
    index = choose(key, slots, limit)
    usable = {each for each, slot in slots.items() if slot.is_usable}
    if index is None:
        assert not usable
        assert {*range(1, limit + 1)} <= slots.keys()
    elif index not in usable:
        assert index not in slots
        assert 1 <= index <= limit
        assert len(usable) < limit


@given(key=KEYS, slots=SLOTS, limit=LIMITS)
def test_a_new_slot_is_for_instances_and_not_for_another_reason(
    key: str, slots: dict[int, SlotView], limit: int
) -> None:
    usable = [slot for slot in slots.values() if slot.is_usable]
    distinct = {key}.union(*(slot.keys for slot in usable), *(slot.lost for slot in usable))
    if (index := choose(key, slots, limit)) is not None and index not in slots:
        assert not usable or len(distinct) > INSTANCES_EACH * len(usable)


@given(slots=SLOTS)
def test_no_worker_with_an_instance_may_end_and_one_stays(slots: dict[int, SlotView]) -> None:
    ending = superfluous(slots)
    assert all(not slots[index].load for index in ending)
    assert len(ending) < len(slots) or not slots


class Device(RuleBasedStateMachine):
    """Instances that start, are replaced and stop, and workers that end when they are empty."""

    limit = 3

    def __init__(self) -> None:
        super().__init__()
        self.slots: dict[int, Counter[str]] = {}
        self.most = 0
        """The largest number of different keys at once."""

    def views(self) -> dict[int, SlotView]:
        return {index: SlotView(keys=(+held).keys()) for index, held in self.slots.items()}

    def running(self) -> set[str]:
        return {key for held in self.slots.values() for key in +held}

    def start(self, key: str) -> int:
        index = choose(key, self.views(), self.limit)
        assert index is not None
        self.slots.setdefault(index, Counter())[key] += 1
        self.most = max(self.most, len(self.running()))
        return index

    @rule(key=KEYS)
    def run(self, key: str) -> None:
        """Start an instance, beside its predecessor if there is one, which stops then."""
        before = [index for index, held in self.slots.items() if held[key]]
        self.start(key)
        for index in before:
            self.slots[index][key] -= 1

    @rule(key=KEYS)
    def stop(self, key: str) -> None:
        for held in self.slots.values():
            held[key] = 0

    @precondition(lambda self: self.slots)
    @rule()
    def look(self) -> None:
        for index in superfluous(self.views()):
            del self.slots[index]

    @precondition(lambda self: self.slots)
    @rule()
    def restart(self) -> None:
        """Replace all instances, as a change that concerns all of them does."""
        old = {index: [*(+held)] for index, held in self.slots.items()}
        for key in sorted(self.running()):
            self.start(key)
        for index, ended in old.items():
            self.slots[index].subtract(ended)
        self.look()
        assert len(self.slots) == wanted(len(self.running()), self.limit)

    @invariant()
    def as_few_workers_as_ever_sufficed(self) -> None:
        assert len(self.slots) <= wanted(self.most, self.limit)


TestDevice = Device.TestCase

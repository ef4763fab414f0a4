"""The codes of the history of traffic, and sums of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.model.history import (
    BLOCK_KEYS,
    BLOCKS,
    BLOCKS_MAX,
    CODES,
    DECODED,
    STORED,
    By,
    Exchanged,
    HistoryStep,
    OpenSlot,
    Sums,
    block_of,
    code_of,
    exchanged_in,
    numbers_of,
)

numbers = st.integers(0, 9_990_000_000_000_000)
traffic = st.dictionaries(
    st.integers(0, 4 * BLOCK_KEYS - 1), st.tuples(numbers, numbers), max_size=30
)


@given(numbers)
def test_a_code_keeps_three_digits(number: int) -> None:
    kept = DECODED[code_of(number)]
    assert kept == number if number < 1000 else abs(kept - number) <= number / 200


@given(st.integers(0, CODES - 1))
def test_a_rounded_number_keeps_its_code(code: int) -> None:
    assert code_of(DECODED[code]) == code


def test_a_number_beyond_all_has_the_largest_code() -> None:
    assert code_of(10**30) == CODES - 1


def test_codes_have_the_order_of_their_numbers() -> None:
    assert [*DECODED] == sorted(set(DECODED))
    assert len(DECODED) == CODES < 1 << 16


def test_all_blocks_at_full_retention_are_smaller_than_150_mb() -> None:
    assert sum(map(len, BLOCKS.values())) == BLOCKS_MAX
    assert BLOCKS_MAX * sum(step.kept for step in STORED) * 4096 < 140e6


@given(traffic, st.sampled_from([*BLOCKS][:2]))
def test_a_slot_has_what_was_added_to_it(added: dict[int, tuple[int, int]], by: By) -> None:
    slot = OpenSlot(900)
    for number, pair in added.items():
        slot.add(by, number, Exchanged(*pair))
    blocks = slot.blocks()
    assert all(len(codes) <= 4 * BLOCK_KEYS and any(codes[-4:]) for codes in blocks.values())
    for number, pair in added.items():
        rounded = Exchanged(*(DECODED[code_of(each)] for each in pair))
        assert exchanged_in(blocks.get(block_of(by, number), b""), number) == rounded


@given(st.lists(traffic, max_size=5))
def test_sums_are_those_of_each_key(slots: list[dict[int, tuple[int, int]]]) -> None:
    sums = Sums()
    expected: dict[int, Exchanged] = {}
    for added in slots:
        slot = OpenSlot(0)
        for number, pair in added.items():
            slot.add("client", number, Exchanged(*pair))
            rounded = [DECODED[code_of(each)] for each in pair]
            before = expected.get(number, Exchanged())
            expected[number] = Exchanged(before[0] + rounded[0], before[1] + rounded[1])
        for block, codes in slot.blocks().items():
            sums.add(block, codes)
    found = sums.largest("client", len(expected) + 1)
    assert dict(found) == {n: pair for n, pair in expected.items() if any(pair)}
    totals = [sum(pair) for _, pair in found]
    assert totals == sorted(totals, reverse=True)
    assert [sum(pair) for _, pair in sums.largest("client", 3)] == totals[:3]


@given(traffic)
def test_blocks_that_are_added_to_a_slot_come_out_again(
    added: dict[int, tuple[int, int]],
) -> None:
    slot, copy = OpenSlot(0), OpenSlot(0)
    for number, pair in added.items():
        slot.add("target", number % BLOCK_KEYS, Exchanged(*pair))
    copy.add_all(slot.blocks())
    assert copy.blocks() == slot.blocks()


@pytest.mark.parametrize("codes", [b"\xff\xff\xff\xff", b"\1"])
def test_other_numbers_than_codes_are_refused(codes: bytes) -> None:
    with pytest.raises(ValueError, match="codes"):
        numbers_of(codes)
    with pytest.raises(ValueError, match="codes"):
        Sums().add(0, codes)


@given(st.floats(-1e9, 1e11), st.sampled_from(HistoryStep))
def test_a_time_is_in_the_slot_that_it_is_given(at: float, step: HistoryStep) -> None:
    start = step.start(at)
    assert start <= at < start + step.seconds
    assert start % step.seconds == 0

"""Sets of addresses and numbers of them, compared with `ipaddress`."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egressd.netd.kernel.address_ranges import RangeMap, Ranges

BLOCK = int(IPv4Address("10.0.0.0"))
spans = st.tuples(st.integers(0, 300), st.integers(0, 300)).map(
    lambda ends: (IPv4Address(BLOCK + min(ends)), IPv4Address(BLOCK + max(ends)))
)


@given(st.lists(spans, max_size=6))
def test_an_address_is_contained_if_in_one_of_the_ranges(
    parts: list[tuple[IPv4Address, IPv4Address]],
) -> None:
    ranges = Ranges(f"{first}-{last}" for first, last in parts)
    for number in range(BLOCK - 1, BLOCK + 302):
        address = IPv4Address(number)
        inside = any(first <= address <= last for first, last in parts)
        assert (address.packed in ranges) == inside
        assert any(address in network for network in ranges.networks()) == inside


def test_all_three_notations_are_read() -> None:
    ranges = Ranges(["10.0.0.1", "10.1.0.0/16", "10.2.0.4-10.2.0.7"])
    assert list(ranges.networks()) == [
        IPv4Network("10.0.0.1/32"),
        IPv4Network("10.1.0.0/16"),
        IPv4Network("10.2.0.4/30"),
    ]
    assert ranges.size == 1 + 65_536 + 4


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("x", "Expected 4 octets"),
        ("10.0.0.0/33", "not a valid netmask"),
        ("10.0.0.1/8", "host bits set"),
        ("10.0.0.9-10.0.0.1", "greater"),
    ],
)
def test_an_invalid_range_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Ranges([text])


def test_clipping_keeps_the_parts_inside_the_ranges() -> None:
    lans = Ranges(["10.1.0.0/16", "10.3.0.0/24"])
    assert list(lans.clip(["10.1.0.7", "10.2.0.7", "10.3.0.0-10.3.0.0"])) == [
        "10.1.0.7",
        "10.3.0.0-10.3.0.0",
    ]
    everything = ["10.1.0.0-10.1.255.255", "10.3.0.0-10.3.0.255"]
    assert list(lans.clip(["0.0.0.0/0"])) == everything
    assert list(lans.clip(["10.0.0.0-10.1.0.0"])) == ["10.1.0.0-10.1.0.0"]
    assert list(lans.clip(["10.1.255.0-10.2.0.0"])) == ["10.1.255.0-10.1.255.255"]
    assert list(Ranges([]).clip(["0.0.0.0/0", "10.1.0.7"])) == []


@given(st.lists(spans, max_size=4), st.lists(spans, max_size=4))
def test_clipping_gives_the_intersection(
    parts: list[tuple[IPv4Address, IPv4Address]], others: list[tuple[IPv4Address, IPv4Address]]
) -> None:
    texts = [f"{first}-{last}" for first, last in others]
    one, other = Ranges(f"{first}-{last}" for first, last in parts), Ranges(texts)
    both = Ranges(one.clip(texts))
    for number in range(BLOCK - 1, BLOCK + 302):
        packed = IPv4Address(number).packed
        assert (packed in both) == (packed in one and packed in other)


cuts = st.dictionaries(st.integers(0, 255), st.integers(0, 2), max_size=6)


def pieces(ends: dict[int, int]) -> dict[str, int]:
    """Return ranges that end at these addresses, with gaps for the number 0."""
    table, first = {}, 0
    for last in sorted(ends):
        if ends[last]:
            table[f"10.0.0.{first}-10.0.0.{last}"] = ends[last]
        first = last + 1
    return table


@given(cuts, cuts)
def test_maps_return_values_of_ranges_and_their_differences(
    before: dict[int, int], after: dict[int, int]
) -> None:
    maps = [RangeMap(pieces(before)), RangeMap(pieces(after))]
    differing = Ranges(maps[0].differing(maps[1]))
    for number in range(256):
        packed = IPv4Address(BLOCK + number).packed
        found = [ranges.get(packed) for ranges in maps]
        expected = [
            next((ends[last] for last in sorted(ends) if number <= last), 0)
            for ends in (before, after)
        ]
        assert found == expected
        assert (packed in differing) == (found[0] != found[1])
    assert list(maps[0].differing(maps[0])) == []


def test_the_last_address_of_the_address_space_is_contained() -> None:
    everything = RangeMap({"0.0.0.0-255.255.255.255": 1})
    assert everything.get(b"\xff" * 4) == 1
    assert list(everything.differing(RangeMap({}))) == ["0.0.0.0-255.255.255.255"]
